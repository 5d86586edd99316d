// Made-up data for training tests: each next token is one of two, so that the best loss is log 2.
#pragma once

#include <cstdint>
#include <span>

#include "base/rng.h"
#include "engine/config/run_config.h"
#include "pipeline/source/microbatch_source.h"

namespace swarmline::testing {

inline constexpr std::uint32_t kVocab = 19;

// Tokens that depend on the sequence's place in the run alone, not on how a step is cut.
class PatternSource final : public MicrobatchSource {
 public:
  explicit PatternSource(const BatchSection& batch) : batch_(batch) {}
  Result<void> read(const MicrobatchId& id, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) override {
    const bool eval = id.phase.kind == PhaseKind::kEval;
    for (std::uint32_t row = 0; row < batch_.microbatch; ++row) {
      const std::uint64_t step = eval ? 0 : id.phase.step;
      const std::uint64_t sequence =
          step * batch_.batch + std::uint64_t{id.index} * batch_.microbatch + row;
      Rng rng = Rng(eval ? 77 : 5).split(sequence);
      std::int32_t token = static_cast<std::int32_t>(rng.below(kVocab));
      for (std::uint32_t i = 0; i < batch_.sequence; ++i) {
        tokens[row * batch_.sequence + i] = token;
        token = (token * 3 + static_cast<std::int32_t>(rng.below(2))) % kVocab;
        targets[row * batch_.sequence + i] = token;
      }
    }
    return {};
  }

 private:
  BatchSection batch_;
};

}  // namespace swarmline::testing
