#include "engine/data/mixture.h"

#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "engine/data/prepared_manifest.h"
#include "engine/data/sequence_order.h"
#include "tests/data/token_bytes.h"
#include "tests/golden/golden.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

TEST(MixtureTest, EveryRoundHasExactSharesAndTurnsCountUp) {
  const std::vector<double> weights = {7, 2.5, 0.5};
  const Mixture mixture(weights, 3);
  std::vector<std::set<std::uint64_t>> turns(3);
  for (std::uint64_t position = 0; position < 3 * kMixtureParts; ++position) {
    const Mixture::Draw draw = mixture.at(position);
    EXPECT_TRUE(turns[draw.part].insert(draw.turn).second);
  }
  const std::vector<std::uint64_t> shares = {7000, 2500, 500};
  for (std::size_t part = 0; part < 3; ++part) {
    EXPECT_EQ(turns[part].size(), 3 * shares[part]);
    EXPECT_EQ(*turns[part].rbegin(), 3 * shares[part] - 1) << "no turn is left out";
  }
}

TEST(MixtureTest, SmallStretchesHaveNearlyTheirShares) {
  const Mixture mixture(std::vector<double>{0.7, 0.3}, 3);
  for (std::uint64_t begin = 0; begin < 20'000; begin += 1000) {
    int first = 0;
    for (std::uint64_t i = 0; i < 1000; ++i) first += mixture.at(begin + i).part == 0;
    EXPECT_NEAR(first, 700, 75) << "five deviations of 1000 draws without replacement";
  }
}

TEST(MixtureTest, SharesAddUpWhateverTheWeights) {
  for (const auto& weights :
       {std::vector<double>{1, 1, 1}, {1e-9, 1}, {3, 3, 3, 3, 3, 3, 3}, {0.1, 0.2, 0.7}}) {
    const Mixture mixture(weights, 1);
    std::uint32_t sum = 0;
    for (std::uint32_t part = 0; part < weights.size(); ++part) {
      EXPECT_GE(mixture.share(part), 1U);
      sum += mixture.share(part);
    }
    EXPECT_EQ(sum, kMixtureParts);
  }
}

// Part of what a run's seed promises: these numbers must never change.
TEST(MixtureTest, GoldenDraws) {
  const Mixture mixture(std::vector<double>{0.7, 0.3}, 42);
  std::vector<std::pair<std::uint32_t, std::uint64_t>> draws;
  for (const std::uint64_t position : {0ULL, 1ULL, 2ULL, 9'999ULL, 10'000ULL, 123'456'789ULL}) {
    const Mixture::Draw draw = mixture.at(position);
    draws.emplace_back(draw.part, draw.turn);
  }
  EXPECT_EQ(draws, (std::vector<std::pair<std::uint32_t, std::uint64_t>>{
                       {0, 3471}, {0, 3463}, {0, 6041}, {1, 1891}, {0, 12807}, {0, 86421992}}));
}

class MixedDatasetTest : public testing::Test {
 protected:
  static std::string tokens_from(std::uint16_t first, int count) {
    std::vector<std::uint16_t> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(static_cast<std::uint16_t>(first + i % 100));
    return raw_tokens<std::uint16_t>(tokens);
  }
  MixedDatasetTest() {
    options_.data.kind = DataKind::kTokens;
    options_.data.files = {folder_.write("a.bin", tokens_from(0, 1001)),
                           folder_.write("b.bin", tokens_from(1000, 201))};
    options_.data.weights = {1, 3};
    options_.data.held_out = 0.1;
  }
  TokenDataset open() {
    auto dataset = TokenDataset::open(options_);
    EXPECT_TRUE(dataset) << dataset.error().what;
    return std::move(*dataset);
  }
  // Which file a sequence is of.
  static int file_of(const TokenDataset& dataset, std::uint64_t sequence) {
    std::vector<std::int32_t> tokens(10), targets(10);
    EXPECT_TRUE(dataset.read(sequence, tokens, targets));
    for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(tokens[i] / 1000, tokens[0] / 1000);
    EXPECT_EQ(targets[9] / 1000, tokens[0] / 1000) << "no sequence is of two files";
    return tokens[0] / 1000;
  }

  TempFolder folder_;
  DatasetOptions options_{.sequence = 10, .seed = 5};
};

TEST_F(MixedDatasetTest, WeightsSayHowMuchOfEachIsTrainedOn) {
  const TokenDataset dataset = open();
  EXPECT_EQ(dataset.parts(), 2U);
  EXPECT_EQ(dataset.sequences(), 120U);
  EXPECT_EQ(dataset.train_sequences(0), 90U);
  EXPECT_EQ(dataset.train_sequences(1), 18U);
  const TrainingOrder order(dataset, 5);
  int second = 0;
  std::map<std::uint64_t, int> times;
  for (std::uint64_t position = 0; position < kMixtureParts; ++position) {
    const std::uint64_t sequence = order.at(position);
    EXPECT_FALSE(dataset.is_held_out(sequence));
    second += file_of(dataset, sequence);
    ++times[sequence];
  }
  EXPECT_EQ(second, 7500);
  EXPECT_EQ(times.size(), 108U) << "all of both";
  for (const auto& [sequence, count] : times) {
    const int fair = sequence < 100 ? 2500 / 90 : 7500 / 18;
    EXPECT_NEAR(count, fair, 1) << "each of a part as often as any other";
  }
}

TEST_F(MixedDatasetTest, BothAreHeldOutAndMixed) {
  const TokenDataset dataset = open();
  EXPECT_EQ(dataset.held_out_sequences(), 12U);
  std::set<std::uint64_t> held;
  for (std::uint64_t i = 0; i < 12; ++i) held.insert(dataset.held_out(i));
  EXPECT_EQ(held.size(), 12U);
  int second = 0;
  for (const std::uint64_t sequence : held) {
    EXPECT_TRUE(dataset.is_held_out(sequence));
    second += file_of(dataset, sequence);
  }
  EXPECT_EQ(second, 2);
}

TEST_F(MixedDatasetTest, ValidationFilesAreEvaluatedAndNotTrainedOn) {
  options_.data.weights = {};
  options_.data.files = {folder_.at("*.bin")};
  options_.data.validation = {folder_.at("b.bin")};
  const TokenDataset dataset = open();
  EXPECT_EQ(dataset.train_sequences(), 100U);
  EXPECT_EQ(dataset.held_out_sequences(), 20U);
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(file_of(dataset, dataset.train(i)), 0);
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(file_of(dataset, dataset.held_out(i)), 1);
  EXPECT_EQ(dataset.used_files().back().part, 1U);
}

// As a peer opens what the coordinator listed, whose globs it has not.
TEST_F(MixedDatasetTest, PartsComeFromTheListToo) {
  const TokenDataset whole = open();
  DatasetOptions listed = options_;
  for (const auto& file : whole.used_files())
    listed.paths.push_back({.path = file.path, .part = file.part, .token_bytes = file.token_bytes});
  const auto opened = TokenDataset::open(listed);
  ASSERT_TRUE(opened) << opened.error().what;
  const TrainingOrder one(whole, 5), other(*opened, 5);
  for (std::uint64_t position = 0; position < 100; ++position)
    EXPECT_EQ(one.at(position), other.at(position));
}

TEST_F(MixedDatasetTest, AnEntryThatIsTooSmallIsNamed) {
  folder_.write("b.bin", tokens_from(1000, 5));
  const auto opened = TokenDataset::open(options_);
  ASSERT_FALSE(opened);
  EXPECT_TRUE(opened.error().what.starts_with("[data] files: \"" + folder_.at("b.bin") +
                                              "\" holds 5 tokens"))
      << opened.error().what;
}

class PreparedFolderTest : public testing::Test {
 protected:
  PreparedFolderTest() {
    manifest_ = {.token_bytes = 4,
                 .vocab = 70'001,
                 .document_end = 7,
                 .tokens = 4,
                 .documents = 1,
                 .text_bytes = 9,
                 .tokenizer = {.kind = "bpe",
                               .name = "tok",
                               .file = "tokenizer.json",
                               .sha256 = std::string(64, 'b')},
                 .made_of = std::string(64, 'c'),
                 .files = {{.name = "tokens-00000.u32.bin",
                            .tokens = 4,
                            .documents = 1,
                            .sha256 = std::string(64, 'a')}}};
    folder_.write("p/tokens-00000.u32.bin", raw_tokens<std::uint32_t>({1, 70'000, 3, 7}));
    folder_.write("p/prepared.json", to_json(manifest_));
    options_.data.kind = DataKind::kTokens;
    options_.data.held_out = 0;
    options_.data.files = {folder_.at("p")};
  }
  std::string refusal() {
    const auto opened = TokenDataset::open(options_);
    return opened ? "" : opened.error().what;
  }
  TempFolder folder_;
  PreparedManifest manifest_;
  DatasetOptions options_{.sequence = 1, .seed = 5};
};

TEST_F(PreparedFolderTest, TokensAndVocabularyAreAsItsListSays) {
  const auto dataset = TokenDataset::open(options_);
  ASSERT_TRUE(dataset) << dataset.error().what;
  EXPECT_EQ(dataset->tokens(), 4U);
  EXPECT_EQ(dataset->token_bytes(), 4U);
  EXPECT_EQ(dataset->vocab(), 70'001U);
  std::vector<std::int32_t> tokens(1), targets(1);
  ASSERT_TRUE(dataset->read(0, tokens, targets));
  EXPECT_EQ(targets[0], 70'000);
}

TEST_F(PreparedFolderTest, WhatDoesNotFitIsRefused) {
  options_.vocab = 1000;
  EXPECT_EQ(
      refusal(),
      "[model] vocab is 1000, but the prepared data's tokenizer has 70001 tokens; write vocab "
      "= 0 or at least 70001");
  options_.vocab = 0;
  options_.data.token_format = TokenFormat::kUint16;
  EXPECT_EQ(refusal(), "[data] token_format: \"" + folder_.at("p") +
                           "\" has uint32 tokens; write token_format = \"auto\"");
  options_.data.token_format = TokenFormat::kAuto;
  options_.data.kind = DataKind::kBytes;
  EXPECT_EQ(refusal(), "[data] files: \"" + folder_.at("p") +
                           "\" is a folder of prepared tokens, found kind = \"bytes\"; write kind "
                           "= \"tokens\"");
  options_.data.kind = DataKind::kTokens;
  folder_.write("p/tokens-00000.u32.bin", "short");
  EXPECT_EQ(refusal(), folder_.at("p/tokens-00000.u32.bin") +
                           ": found 5 bytes, expected 4 tokens of 4: the file was changed or cut "
                           "short; prepare the data anew");
}

TEST_F(PreparedFolderTest, DocumentsAreMaskedByTheTokenThatTheyBeginWith) {
  EXPECT_EQ(TokenDataset::open(options_)->separator(), std::nullopt) << "nobody asked";
  options_.data.mask_documents = true;
  EXPECT_EQ(TokenDataset::open(options_)->separator(), 7U);
  manifest_.document_begin = 1;
  folder_.write("p/prepared.json", to_json(manifest_));
  EXPECT_EQ(TokenDataset::open(options_)->separator(), 1U);

  // Another number type is the same separator.
  PreparedManifest narrow = manifest_;
  narrow.token_bytes = 2;
  narrow.vocab = 8;
  narrow.files[0].name = "tokens-00000.u16.bin";
  folder_.write("q/tokens-00000.u16.bin", raw_tokens<std::uint16_t>({1, 5, 3, 7}));
  folder_.write("q/prepared.json", to_json(narrow));
  options_.data.validation = {folder_.at("q")};
  const auto both = TokenDataset::open(options_);
  ASSERT_TRUE(both) << both.error().what;
  EXPECT_EQ(both->separator(), 1U);
}

TEST_F(PreparedFolderTest, DocumentsThatAreNotToldApartAreNotMasked) {
  options_.data.mask_documents = true;
  PreparedManifest other = manifest_;
  other.document_end = 8;
  folder_.write("q/tokens-00000.u32.bin", raw_tokens<std::uint32_t>({1, 5, 3, 8}));
  folder_.write("q/prepared.json", to_json(other));
  options_.data.files.push_back(folder_.at("q"));
  EXPECT_EQ(refusal(),
            "[data] mask_documents: documents of \"" + folder_.at("q") +
                "\" begin with token 8, and those of another folder with 7; prepare both with one "
                "tokenizer, --begin and --end, or take mask_documents out");
  options_.data.mask_documents = false;
  EXPECT_EQ(refusal(), "");

  options_.data.mask_documents = true;
  other.document_end.reset();
  folder_.write("q/prepared.json", to_json(other));
  EXPECT_EQ(refusal(), "[data] mask_documents: \"" + folder_.at("q") +
                           "\" has no token between its documents; prepare it anew without "
                           "\"--end none\", or take mask_documents out");

  const std::string shard = folder_.at("p/tokens-00000.u32.bin");
  options_.data.files = {shard};
  EXPECT_EQ(refusal(), "[data] mask_documents: \"" + shard +
                           "\" does not say which token its documents begin with, expected folders "
                           "made by \"swarmline data prepare\"; prepare the texts, or take "
                           "mask_documents out");
  options_.data.kind = DataKind::kBytes;
  EXPECT_EQ(TokenDataset::open(options_)->separator(), kEndOfDocument);
}

TEST_F(PreparedFolderTest, TheManifestReadsBackAndOthersAreRefused) {
  const std::string text = to_json(manifest_);
  expect_golden("data/prepared.json", text);
  const auto read = parse_prepared(text, "p");
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(*read, manifest_);
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    const auto parsed = parse_prepared(changed, "p");
    return parsed ? std::string() : parsed.error().what;
  };
  EXPECT_EQ(refused("\"format\": 1", "\"format\": 2"),
            "p: found format 2, expected 1; it needs a newer swarmline");
  EXPECT_NE(refused("\"token_bytes\": 4", "\"token_bytes\": 3"), "");
  EXPECT_NE(refused("\"tokens\": 4", "\"tokens\": 5"), "");
  EXPECT_NE(refused("tokens-00000.u32.bin", "../etc/passwd"), "") << "files of the folder alone";
  EXPECT_NE(refused("aaaa", "AAAA"), "");
  EXPECT_NE(refused("\"vocab\": 70001", "\"vocab\": -1"), "");
  EXPECT_FALSE(parse_prepared("[]", "p"));
  EXPECT_FALSE(parse_prepared("", "p"));
}

TEST(RawFilesTest, CompressedFilesAreNotTrainedOnByMistake) {
  const TempFolder folder;
  DatasetOptions options{.sequence = 1};
  for (const auto& [name, bytes] :
       std::map<std::string, std::string>{{"a.txt", "\x1f\x8b\x08 gzip"},
                                          {"b.txt.gz", "whatever"},
                                          {"c.parquet", "PAR1"},
                                          {"d", "\x28\xb5\x2f\xfd zstd"},
                                          {"e.zip", "PK\x03\x04"}}) {
    options.data.files = {folder.write(name, bytes)};
    const auto opened = TokenDataset::open(options);
    ASSERT_FALSE(opened) << name;
    EXPECT_NE(opened.error().what.find("whose bytes are not text"), std::string::npos);
  }
  options.data.files = {"~/texts/*.txt"};
  EXPECT_NE(TokenDataset::open(options).error().what.find("~ is the shell's word"),
            std::string::npos);
}

}  // namespace
}  // namespace swarmline
