#include "engine/data/token_dataset.h"

#include <filesystem>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/data/token_bytes.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

class TokenDatasetTest : public testing::Test {
 protected:
  TokenDataset open(DatasetOptions options) {
    auto dataset = TokenDataset::open(options);
    EXPECT_TRUE(dataset) << dataset.error().what;
    return std::move(*dataset);
  }
  DatasetOptions bytes(std::vector<std::string> files, std::uint32_t sequence) {
    DatasetOptions options{.sequence = sequence, .seed = 5};
    options.data.files = std::move(files);
    options.data.held_out = 0;
    return options;
  }
  DatasetOptions token_files(std::vector<std::string> files, std::uint32_t sequence,
                             TokenFormat format) {
    DatasetOptions options = bytes(std::move(files), sequence);
    options.data.kind = DataKind::kTokens;
    options.data.token_format = format;
    return options;
  }
  // The stream, put together again from all sequences.
  std::vector<std::int32_t> stream(const TokenDataset& dataset) {
    std::vector<std::int32_t> all;
    std::vector<std::int32_t> tokens(dataset.sequence());
    std::vector<std::int32_t> targets(dataset.sequence());
    for (std::uint64_t n = 0; n < dataset.sequences(); ++n) {
      const auto read = dataset.read(n, tokens, targets);
      EXPECT_TRUE(read) << read.error().what;
      if (!all.empty()) EXPECT_EQ(all.back(), tokens.front()) << "neighbours share one token";
      if (!all.empty()) all.pop_back();
      all.insert(all.end(), tokens.begin(), tokens.end());
      all.push_back(targets.back());
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i) EXPECT_EQ(targets[i], tokens[i + 1]);
    }
    return all;
  }

  TempFolder folder_;
};

TEST_F(TokenDatasetTest, DocumentsAreJoinedByEndOfDocument) {
  const TokenDataset dataset =
      open(bytes({folder_.write("1.txt", "ab\xFF"), folder_.write("2.txt", "c"),
                  folder_.write("3.txt", "defg")},
                 2));
  EXPECT_EQ(dataset.tokens(), 11U);
  EXPECT_EQ(dataset.sequences(), 5U);
  EXPECT_EQ(dataset.vocab(), kByteVocab);
  EXPECT_EQ(dataset.file_bytes(), 8U);
  EXPECT_EQ(stream(dataset),
            (std::vector<std::int32_t>{'a', 'b', 255, 256, 'c', 256, 'd', 'e', 'f', 'g', 256}));
}

TEST_F(TokenDatasetTest, TailTooShortForASequenceIsLeftOut) {
  const std::string path = folder_.write("a", "abcdef");  // 7 tokens
  EXPECT_EQ(open(bytes({path}, 6)).sequences(), 1U);
  EXPECT_EQ(open(bytes({path}, 5)).sequences(), 1U);
  EXPECT_EQ(open(bytes({path}, 4)).sequences(), 1U);
  EXPECT_EQ(open(bytes({path}, 3)).sequences(), 2U);
  EXPECT_EQ(stream(open(bytes({path}, 5))).size(), 6U);
}

// Against a plain concatenation, for random documents and sequence lengths.
TEST_F(TokenDatasetTest, StreamEqualsPlainConcatenation) {
  Rng rng(11);
  for (int round = 0; round < 30; ++round) {
    std::vector<std::int32_t> expected;
    std::vector<std::string> files;
    for (std::uint64_t file = 0; file < 1 + rng.below(6); ++file) {
      std::string text;
      for (std::uint64_t i = 0; i < 1 + rng.below(20); ++i) {
        text.push_back(static_cast<char>(rng.below(256)));
        expected.push_back(static_cast<unsigned char>(text.back()));
      }
      expected.push_back(kEndOfDocument);
      files.push_back(folder_.write(std::to_string(file), text));
    }
    const auto sequence = static_cast<std::uint32_t>(1 + rng.below(expected.size() - 1));
    const TokenDataset dataset = open(bytes(files, sequence));
    EXPECT_EQ(dataset.tokens(), expected.size());
    expected.resize(dataset.sequences() * sequence + 1);
    EXPECT_EQ(stream(dataset), expected);
  }
}

TEST_F(TokenDatasetTest, GlobsAreSortedFilesCountOnceAndEmptyMatchesAreSkipped) {
  folder_.write("in/b.txt", "B");
  folder_.write("in/a.txt", "A");
  folder_.write("in/empty.txt", "");
  const TokenDataset dataset =
      open(bytes({folder_.at("in/b.txt"), folder_.at("in/*.txt"), folder_.at("in/**")}, 1));
  EXPECT_EQ(stream(dataset), (std::vector<std::int32_t>{'B', 256, 'A', 256}));
  EXPECT_EQ(dataset.files(), 2U);
}

TEST_F(TokenDatasetTest, BytesMaxCutsTheData) {
  DatasetOptions options = bytes(
      {folder_.write("1", "abcd"), folder_.write("2", "efgh"), folder_.write("3", "ijkl")}, 1);
  options.data.bytes_max = 6;
  EXPECT_EQ(stream(open(options)),
            (std::vector<std::int32_t>{'a', 'b', 'c', 'd', 256, 'e', 'f', 256}));
  DatasetOptions tokens = token_files({folder_.write("t", raw_tokens<std::uint16_t>({1, 2, 3, 4}))},
                                      1, TokenFormat::kUint16);
  tokens.data.bytes_max = 7;
  EXPECT_EQ(stream(open(tokens)), (std::vector<std::int32_t>{1, 2, 3}));
}

TEST_F(TokenDatasetTest, TokenShardsOfEveryFormat) {
  const std::string narrow = folder_.write("a.bin", raw_tokens<std::uint16_t>({1, 2, 65535}));
  const std::string wide = folder_.write("b.u32", raw_tokens<std::uint32_t>({7, 70000, 9}));
  const std::string llmc = folder_.write("c.bin", llmc_file({50256, 3}, 2));
  EXPECT_EQ(stream(open(token_files({narrow}, 1, TokenFormat::kUint16))),
            (std::vector<std::int32_t>{1, 2, 65535}));
  EXPECT_EQ(stream(open(token_files({wide}, 1, TokenFormat::kUint32))),
            (std::vector<std::int32_t>{7, 70000, 9}));
  EXPECT_EQ(stream(open(token_files({narrow, llmc}, 2, TokenFormat::kAuto))),
            (std::vector<std::int32_t>{1, 2, 65535, 50256, 3}));
}

TEST_F(TokenDatasetTest, VocabularyIsTheModelsOrWhatTheDataNeeds) {
  const std::string path = folder_.write("a.bin", raw_tokens<std::uint16_t>({1, 99, 5}));
  EXPECT_EQ(open(token_files({path}, 1, TokenFormat::kAuto)).vocab(), 100U);
  DatasetOptions options = token_files({path}, 1, TokenFormat::kAuto);
  options.vocab = 50304;
  EXPECT_EQ(open(options).vocab(), 50304U);
  DatasetOptions padded = bytes({path}, 1);
  padded.vocab = 320;
  EXPECT_EQ(open(padded).vocab(), 320U);
}

TEST_F(TokenDatasetTest, TokenBeyondTheVocabularyIsNamedWithFileAndOffset) {
  folder_.write("good.bin", raw_tokens<std::uint16_t>({1, 2, 3}));
  const std::string path = folder_.write("bad.bin", llmc_file({1, 2, 3, 300, 4}, 5));
  DatasetOptions options = token_files({folder_.at("good.bin"), path}, 2, TokenFormat::kAuto);
  options.vocab = 300;
  const TokenDataset dataset = open(options);
  std::vector<std::int32_t> tokens(2);
  std::vector<std::int32_t> targets(2);
  EXPECT_TRUE(dataset.read(0, tokens, targets));
  const auto read = dataset.read(2, tokens, targets);  // tokens 2, 3 and the target 300
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kUserMistake);
  EXPECT_EQ(read.error().what,
            path +
                ": token 300 at byte 1030 is outside the vocabulary of 300: raise [model] vocab, "
                "or is [data] token_format wrong?");
}

TEST_F(TokenDatasetTest, SplitIsExactSeededAndDisjoint) {
  DatasetOptions options = bytes({folder_.write("a", std::string(10000, 'x'))}, 10);
  options.data.held_out = 0.025;
  const TokenDataset dataset = open(options);
  EXPECT_EQ(dataset.sequences(), 1000U);
  EXPECT_EQ(dataset.held_out_sequences(), 25U);
  std::set<std::uint64_t> held_out;
  std::set<std::uint64_t> train;
  for (std::uint64_t i = 0; i < 25; ++i) held_out.insert(dataset.held_out(i));
  for (std::uint64_t i = 0; i < 975; ++i) train.insert(dataset.train(i));
  EXPECT_EQ(held_out.size(), 25U);
  EXPECT_EQ(train.size(), 975U);
  for (std::uint64_t n = 0; n < 1000; ++n) {
    EXPECT_EQ(dataset.is_held_out(n), held_out.contains(n));
    EXPECT_NE(train.contains(n), held_out.contains(n));
  }
  EXPECT_GT(*held_out.rbegin(), 500U) << "spread over the data";
  EXPECT_LT(*held_out.begin(), 500U);

  options.seed = 6;
  const TokenDataset other = open(options);
  int same = 0;
  for (std::uint64_t i = 0; i < 25; ++i) same += held_out.contains(other.held_out(i));
  EXPECT_LT(same, 10);
}

TEST_F(TokenDatasetTest, AnyShareHoldsOutAtLeastOne) {
  DatasetOptions options = bytes({folder_.write("a", "abcdef")}, 2);
  options.data.held_out = 0.001;
  EXPECT_EQ(open(options).held_out_sequences(), 1U);
  options.data.held_out = 0;
  EXPECT_EQ(open(options).held_out_sequences(), 0U);
}

// As a peer opens what the coordinator listed.
TEST_F(TokenDatasetTest, NamedFilesAreOpenedInTheirOrderWhateverThePatternsSay) {
  const std::string first = folder_.write("z.txt", "ab"), second = folder_.write("a.txt", "cd");
  DatasetOptions options = bytes({folder_.at("*.txt")}, 2);
  options.paths = {{.path = first}, {.path = second}};
  const TokenDataset dataset = open(options);
  EXPECT_EQ(stream(dataset), (std::vector<std::int32_t>{'a', 'b', 256, 'c', 'd'}));
  ASSERT_EQ(dataset.used_files().size(), 2U);
  EXPECT_EQ(dataset.used_files()[0].path, first);
  EXPECT_EQ(dataset.used_files()[1].used, 2U);
  options.root = folder_.at("elsewhere");
  ASSERT_TRUE(make_folders(options.root));
  EXPECT_FALSE(TokenDataset::open(options)) << "nothing is read outside of the root";
}

}  // namespace
}  // namespace swarmline
