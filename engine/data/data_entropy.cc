#include "engine/data/data_entropy.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "engine/data/sequence_order.h"

namespace swarmline {

namespace {

constexpr std::uint32_t kPairTableVocabMax = 2048;  // squared times 8 bytes = 32 MiB

// sum of -n/total * log(n/context) over cells: with context = total, a plain entropy.
double term(std::uint64_t count, std::uint64_t context, std::uint64_t total) {
  const auto n = static_cast<double>(count);
  return n / static_cast<double>(total) * std::log(static_cast<double>(context) / n);
}

struct Sample {
  std::uint64_t sequences = 0;
  bool whole = true;
};

Sample sample_of(const TokenDataset& dataset, std::uint64_t sequences, std::uint64_t token_bytes) {
  const std::uint64_t sequence_bytes = dataset.sequence() * token_bytes;
  const std::uint64_t allowed = std::max<std::uint64_t>(1, kEntropySampleBytesMax / sequence_bytes);
  return {.sequences = std::min(sequences, allowed), .whole = sequences <= allowed};
}

// Entropy of the next token given the one before, from pair counts however they are kept.
double from_table(const std::vector<std::uint64_t>& counts, std::size_t vocab,
                  std::uint64_t total) {
  double entropy = 0;
  for (std::size_t row = 0; row < vocab; ++row) {
    std::uint64_t context = 0;
    for (std::size_t i = 0; i < vocab; ++i) context += counts[row * vocab + i];
    for (std::size_t i = 0; i < vocab; ++i) {
      if (const std::uint64_t n = counts[row * vocab + i]; n > 0)
        entropy += term(n, context, total);
    }
  }
  return entropy;
}

double from_pairs(std::vector<std::uint64_t>& pairs) {
  std::ranges::sort(pairs);
  double entropy = 0;
  for (std::size_t row = 0; row < pairs.size();) {
    std::size_t row_end = row;
    while (row_end < pairs.size() && pairs[row_end] >> 32 == pairs[row] >> 32) ++row_end;
    for (std::size_t cell = row; cell < row_end;) {
      std::size_t cell_end = cell;
      while (cell_end < row_end && pairs[cell_end] == pairs[cell]) ++cell_end;
      entropy += term(cell_end - cell, row_end - row, pairs.size());
      cell = cell_end;
    }
    row = row_end;
  }
  return entropy;
}

Result<void> measure_unigram(const TokenDataset& dataset, DataEntropy& out) {
  const Sample sample = sample_of(dataset, dataset.train_sequences(), dataset.token_bytes());
  std::vector<std::uint64_t> counts(dataset.vocab(), 0);
  std::vector<std::int32_t> tokens(dataset.sequence());
  std::vector<std::int32_t> targets(dataset.sequence());
  // Of a mixture what it draws first, which has its proportions; the seed is anybody's.
  const bool mixed = !dataset.weights().empty();
  const TrainingOrder order(dataset, 0);
  for (std::uint64_t i = 0; i < sample.sequences; ++i) {
    SWARMLINE_TRY(dataset.read(mixed ? order.at(i) : dataset.train(i), tokens, targets));
    for (const std::int32_t token : tokens) ++counts[token];
  }
  const std::uint64_t total = sample.sequences * dataset.sequence();
  for (const std::uint64_t count : counts) {
    if (count > 0) out.unigram_nats += term(count, total, total);
  }
  out.unigram_tokens = total;
  out.sampled |= !sample.whole || mixed;
  return {};
}

Result<void> measure_bigram(const TokenDataset& dataset, DataEntropy& out) {
  if (dataset.held_out_sequences() == 0) return {};
  const std::size_t vocab = dataset.vocab();
  const bool table = vocab <= kPairTableVocabMax;
  const Sample sample = sample_of(dataset, dataset.held_out_sequences(),
                                  table ? dataset.token_bytes() : sizeof(std::uint64_t));
  const std::uint64_t total = sample.sequences * dataset.sequence();

  std::vector<std::uint64_t> cells;  // counts of the table, or the pairs themselves
  if (table) cells.resize(vocab * vocab, 0);
  if (!table) cells.reserve(total);
  std::vector<std::int32_t> tokens(dataset.sequence());
  std::vector<std::int32_t> targets(dataset.sequence());
  for (std::uint64_t i = 0; i < sample.sequences; ++i) {
    SWARMLINE_TRY(dataset.read(dataset.held_out(i), tokens, targets));
    for (std::size_t k = 0; k < tokens.size(); ++k) {
      const auto before = static_cast<std::uint64_t>(tokens[k]);
      const auto next = static_cast<std::uint64_t>(targets[k]);
      if (table) ++cells[before * vocab + next];
      if (!table) cells.push_back(before << 32 | next);
    }
  }
  out.bigram_nats = table ? from_table(cells, vocab, total) : from_pairs(cells);
  out.bigram_pairs = total;
  out.sampled |= !sample.whole;
  return {};
}

}  // namespace

double nats_to_bits(double nats) {
  return nats / std::numbers::ln2;
}

Result<DataEntropy> measure_entropy(const TokenDataset& dataset) {
  DataEntropy entropy;
  SWARMLINE_TRY(measure_unigram(dataset, entropy));
  SWARMLINE_TRY(measure_bigram(dataset, entropy));
  return entropy;
}

}  // namespace swarmline
