// What a model must beat to have learnt anything: empirical entropies of the data, measured at
// start.
//   Bounds: at most kEntropySampleBytesMax of each split are read, in the split's seeded order, so
//           a sample is uniform; pairs of a vocabulary too large for a table take at most as much
//           memory.
//   Thread: pure; blocks while it reads. Errors: those of TokenDataset::read.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "engine/data/token_dataset.h"

namespace swarmline {

inline constexpr std::uint64_t kEntropySampleBytesMax = 64 * kMiB;

// One nat is 1 / ln 2 bits.
double nats_to_bits(double nats);

struct DataEntropy {
  // Entropy of single tokens of the training split, nats per token.
  double unigram_nats = 0;
  std::uint64_t unigram_tokens = 0;  // that were counted
  // Conditional entropy H(target | the token before it) of the held-out split, nats per token; the
  // loss of the best bigram model there can be for it. Absent when nothing is held out.
  std::optional<double> bigram_nats;
  std::uint64_t bigram_pairs = 0;
  bool sampled = false;  // true: the data was larger than the sample
};
Result<DataEntropy> measure_entropy(const TokenDataset& dataset);

}  // namespace swarmline
