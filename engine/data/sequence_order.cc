#include "engine/data/sequence_order.h"

#include <algorithm>

#include "base/check.h"
#include "base/rng.h"

namespace swarmline {

std::uint64_t SequenceOrder::at(std::uint64_t position) const {
  const std::uint64_t epoch = position / sequences_;
  const std::uint64_t key = Rng(seed_).split("data order").split(epoch).seed();
  return IndexPermutation(sequences_, key).apply(position % sequences_);
}

TrainingOrder::TrainingOrder(const TokenDataset& dataset, std::uint64_t seed) : dataset_(dataset) {
  if (!dataset.weights().empty()) mixture_.emplace(dataset.weights(), seed);
  for (std::uint32_t part = 0; part < dataset.parts(); ++part)
    orders_.emplace_back(dataset.train_sequences(part),
                         part == 0 ? seed : Rng(seed).split(part).seed());
}

std::uint64_t TrainingOrder::at(std::uint64_t position) const {
  const Mixture::Draw draw = mixture_ ? mixture_->at(position) : Mixture::Draw{.turn = position};
  return dataset_.train(draw.part, orders_[draw.part].at(draw.turn));
}

MicrobatchOrder::MicrobatchOrder(const TokenDataset& dataset, const MicrobatchOrderOptions& options)
    : dataset_(dataset),
      batch_(options.batch),
      from_step_(options.from_step),
      from_sequence_(options.from_sequence),
      order_(dataset, options.seed),
      eval_sequences_(std::min(options.eval_sequences_max, dataset.held_out_sequences())) {
  SWARMLINE_CHECK(batch_.microbatch > 0 && batch_.batch % batch_.microbatch == 0);
  SWARMLINE_CHECK(batch_.sequence == dataset.sequence());
}

std::uint32_t MicrobatchOrder::microbatches(PhaseKind kind) const {
  if (kind == PhaseKind::kTrain) return batch_.batch / batch_.microbatch;
  return static_cast<std::uint32_t>((eval_sequences_ + batch_.microbatch - 1) / batch_.microbatch);
}

std::uint32_t MicrobatchOrder::rows(const MicrobatchId& id) const {
  SWARMLINE_CHECK(id.index < microbatches(id.phase.kind));
  if (id.phase.kind == PhaseKind::kTrain) return batch_.microbatch;
  const std::uint64_t first = std::uint64_t{id.index} * batch_.microbatch;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(batch_.microbatch, eval_sequences_ - first));
}

std::uint64_t MicrobatchOrder::sequence(const MicrobatchId& id, std::uint32_t row) const {
  SWARMLINE_CHECK(row < rows(id));
  const std::uint64_t within = std::uint64_t{id.index} * batch_.microbatch + row;
  if (id.phase.kind == PhaseKind::kEval) return dataset_.held_out(within);
  return order_.at(position_of(id.phase.step) + within);
}

std::uint64_t MicrobatchOrder::position_of(std::uint64_t step) const {
  return from_sequence_ + (std::max(step, from_step_) - from_step_) * batch_.batch;
}

Result<void> MicrobatchOrder::read(const MicrobatchId& id, std::span<std::int32_t> tokens,
                                   std::span<std::int32_t> targets) const {
  const std::uint32_t count = rows(id);
  const std::size_t length = batch_.sequence;
  SWARMLINE_CHECK(tokens.size() == count * length && targets.size() == count * length);
  for (std::uint32_t row = 0; row < count; ++row) {
    SWARMLINE_TRY(dataset_.read(sequence(id, row), tokens.subspan(row * length, length),
                                targets.subspan(row * length, length)));
  }
  return {};
}

}  // namespace swarmline
