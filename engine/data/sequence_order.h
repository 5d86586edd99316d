// Which sequences a microbatch is made of: pure functions of (seed, phase, index), nothing to save.
//   Training: global position p = step * batch + index * microbatch + row, p counted over the whole
//             run (where its batch or data were changed: from_sequence + (step - from_step) * batch
//             + ..., RunConfig's data section); epoch p / train_sequences() is its own permutation
//             of the training sequences, so each comes once an epoch and a batch may reach into the
//             next one.
//             With weights a mixture (mixture.h) says which part a position draws from, and each
//             part has epochs of its own.
//   Evaluation: the first eval_sequences() held-out sequences, in order; the last microbatch may
//               have fewer rows.
//   Thread:   immutable; TokenDataset must outlive it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/data/mixture.h"
#include "engine/data/token_dataset.h"

namespace swarmline {

class SequenceOrder {
 public:
  // sequences >= 1.
  SequenceOrder(std::uint64_t sequences, std::uint64_t seed) : sequences_(sequences), seed_(seed) {}
  // Index into the training sequences, [0, sequences), at a global position.
  std::uint64_t at(std::uint64_t position) const;

 private:
  std::uint64_t sequences_;
  std::uint64_t seed_;
};

// The dataset's sequence number at each global position of the training.
class TrainingOrder {
 public:
  TrainingOrder(const TokenDataset& dataset, std::uint64_t seed);
  std::uint64_t at(std::uint64_t position) const;

 private:
  const TokenDataset& dataset_;
  std::optional<Mixture> mixture_;
  std::vector<SequenceOrder> orders_;  // of the parts
};

struct MicrobatchOrderOptions {
  BatchSection batch;
  std::uint64_t seed = 0;                // the run's
  std::uint64_t eval_sequences_max = 0;  // [eval] sequences_max
  std::uint64_t from_step = 0;           // this step
  std::uint64_t from_sequence = 0;       // begins at this position; no step before it is asked for
};

class MicrobatchOrder {
 public:
  MicrobatchOrder(const TokenDataset& dataset, const MicrobatchOrderOptions& options);

  std::uint64_t eval_sequences() const { return eval_sequences_; }  // 0: nothing is held out
  std::uint32_t microbatches(PhaseKind kind) const;
  std::uint32_t rows(const MicrobatchId& id) const;  // sequences, >= 1
  // The dataset's sequence number of one row.
  std::uint64_t sequence(const MicrobatchId& id, std::uint32_t row) const;
  // Fills (rows, sequence) int32, row-major; both spans have rows(id) * sequence elements.
  Result<void> read(const MicrobatchId& id, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const;

 private:
  std::uint64_t position_of(std::uint64_t step) const;

  const TokenDataset& dataset_;
  BatchSection batch_;
  std::uint64_t from_step_, from_sequence_;
  TrainingOrder order_;
  std::uint64_t eval_sequences_;
};

}  // namespace swarmline
