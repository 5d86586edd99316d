// Tokens without files: a pure function of (seed, phase, index), with enough structure to learn
// from (each token depends on the one before). For simulations and tests. Thread: stateless.
#pragma once

#include "pipeline/source/microbatch_source.h"

namespace swarmline {

class SyntheticSource final : public MicrobatchSource {
 public:
  SyntheticSource(std::uint64_t seed, std::uint32_t vocab, std::uint32_t sequence);
  Result<void> read(const MicrobatchId& id, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) override;

 private:
  std::uint64_t seed_;
  std::uint32_t vocab_;
  std::uint32_t sequence_;
};

}  // namespace swarmline
