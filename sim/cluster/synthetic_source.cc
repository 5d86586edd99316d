#include "sim/cluster/synthetic_source.h"

#include "base/rng.h"

namespace swarmline {

SyntheticSource::SyntheticSource(std::uint64_t seed, std::uint32_t vocab, std::uint32_t sequence)
    : seed_(seed), vocab_(vocab), sequence_(sequence) {}

Result<void> SyntheticSource::read(const MicrobatchId& id, std::span<std::int32_t> tokens,
                                   std::span<std::int32_t> targets) {
  Rng rng = Rng(seed_)
                .split(id.phase.kind == PhaseKind::kEval ? "held out" : "train")
                .split(id.phase.kind == PhaseKind::kEval ? 0 : id.phase.step)
                .split(id.index);
  const std::size_t rows = tokens.size() / sequence_;
  for (std::size_t row = 0; row < rows; ++row) {
    auto token = static_cast<std::uint32_t>(rng.below(vocab_));
    for (std::size_t i = 0; i < sequence_; ++i) {
      tokens[row * sequence_ + i] = static_cast<std::int32_t>(token);
      token = (token * 3 + 1 + static_cast<std::uint32_t>(rng.below(4))) % vocab_;
      targets[row * sequence_ + i] = static_cast<std::int32_t>(token);
    }
  }
  return {};
}

}  // namespace swarmline
