#include "engine/data/data_entropy.h"

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/data/token_bytes.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

TokenDataset open(const DatasetOptions& options) {
  auto dataset = TokenDataset::open(options);
  EXPECT_TRUE(dataset) << dataset.error().what;
  return std::move(*dataset);
}

// The definitions, from maps.
struct Naive {
  double unigram = 0;
  double bigram = 0;
};
Naive naive_entropy(const TokenDataset& dataset) {
  std::map<int, double> single;
  std::map<int, double> context;
  std::map<std::pair<int, int>, double> pair;
  double singles = 0;
  double pairs = 0;
  std::vector<std::int32_t> tokens(dataset.sequence());
  std::vector<std::int32_t> targets(dataset.sequence());
  for (std::uint64_t n = 0; n < dataset.sequences(); ++n) {
    EXPECT_TRUE(dataset.read(n, tokens, targets));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (dataset.is_held_out(n)) {
        ++context[tokens[i]];
        ++pair[{tokens[i], targets[i]}];
        ++pairs;
      } else {
        ++single[tokens[i]];
        ++singles;
      }
    }
  }
  Naive naive;
  for (const auto& [token, count] : single)
    naive.unigram -= count / singles * std::log(count / singles);
  for (const auto& [key, count] : pair) {
    naive.bigram -= count / pairs * std::log(count / context[key.first]);
  }
  return naive;
}

TEST(DataEntropyTest, EqualsTheDefinitionForBytes) {
  const TempFolder folder;
  Rng rng(4);
  std::string text;
  for (int i = 0; i < 20000; ++i) {
    text.push_back(static_cast<char>('a' + (i * rng.below(3) + rng.below(7)) % 26));
  }
  DatasetOptions options{.sequence = 16, .seed = 2};
  options.data.files = {folder.write("a", text)};
  options.data.held_out = 0.2;
  const TokenDataset dataset = open(options);
  const auto entropy = measure_entropy(dataset);
  ASSERT_TRUE(entropy) << entropy.error().what;
  const Naive naive = naive_entropy(dataset);
  EXPECT_NEAR(entropy->unigram_nats, naive.unigram, 1e-9);
  ASSERT_TRUE(entropy->bigram_nats);
  EXPECT_NEAR(*entropy->bigram_nats, naive.bigram, 1e-9);
  EXPECT_LT(*entropy->bigram_nats, entropy->unigram_nats);
  EXPECT_EQ(entropy->unigram_tokens, dataset.train_sequences() * 16);
  EXPECT_EQ(entropy->bigram_pairs, dataset.held_out_sequences() * 16);
  EXPECT_FALSE(entropy->sampled);
}

// A vocabulary too large for a table of pairs takes the other way.
TEST(DataEntropyTest, EqualsTheDefinitionForLargeVocabularies) {
  const TempFolder folder;
  Rng rng(5);
  std::vector<std::uint16_t> tokens;
  for (int i = 0; i < 20000; ++i)
    tokens.push_back(static_cast<std::uint16_t>(rng.below(60) * 1000));
  DatasetOptions options{.sequence = 8, .seed = 2};
  options.data = {.kind = DataKind::kTokens,
                  .files = {folder.write("a.bin", raw_tokens(tokens))},
                  .held_out = 0.5};
  const TokenDataset dataset = open(options);
  ASSERT_EQ(dataset.vocab(), 59001U);
  const auto entropy = measure_entropy(dataset);
  ASSERT_TRUE(entropy) << entropy.error().what;
  const Naive naive = naive_entropy(dataset);
  EXPECT_NEAR(entropy->unigram_nats, naive.unigram, 1e-9);
  EXPECT_NEAR(*entropy->bigram_nats, naive.bigram, 1e-9);
}

TEST(DataEntropyTest, KnownValues) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "ab";  // the next letter is certain
  text += "abc";                                // the tail is in no sequence
  DatasetOptions options{.sequence = 10, .seed = 1};
  options.data.files = {folder.write("a", text)};
  options.data.held_out = 0.1;
  const auto entropy = measure_entropy(open(options));
  ASSERT_TRUE(entropy) << entropy.error().what;
  EXPECT_NEAR(nats_to_bits(entropy->unigram_nats), 1, 1e-6);
  EXPECT_NEAR(*entropy->bigram_nats, 0, 1e-12);
}

TEST(DataEntropyTest, NothingHeldOutHasNoBigramEntropy) {
  const TempFolder folder;
  DatasetOptions options{.sequence = 4, .seed = 1};
  options.data.files = {folder.write("a", "abcdefgh")};
  options.data.held_out = 0;
  const auto entropy = measure_entropy(open(options));
  ASSERT_TRUE(entropy) << entropy.error().what;
  EXPECT_FALSE(entropy->bigram_nats);
}

TEST(DataEntropyTest, LargeDataIsSampled) {
  const TempFolder folder;
  DatasetOptions options{.sequence = 1024, .seed = 1};
  options.data.files = {folder.write("a", std::string(kEntropySampleBytesMax + 100000, 'x'))};
  options.data.held_out = 0.0001;
  const auto entropy = measure_entropy(open(options));
  ASSERT_TRUE(entropy) << entropy.error().what;
  EXPECT_TRUE(entropy->sampled);
  EXPECT_EQ(entropy->unigram_tokens, kEntropySampleBytesMax);
}

TEST(DataEntropyTest, BadTokensAreTheUsersMistake) {
  const TempFolder folder;
  DatasetOptions options{.sequence = 4, .seed = 1, .vocab = 10};
  options.data = {.kind = DataKind::kTokens,
                  .files = {folder.write("a.bin", raw_tokens(std::vector<std::uint16_t>(50, 10)))}};
  const auto entropy = measure_entropy(open(options));
  ASSERT_FALSE(entropy);
  EXPECT_EQ(entropy.error().code, ErrorCode::kUserMistake);
}

}  // namespace
}  // namespace swarmline
