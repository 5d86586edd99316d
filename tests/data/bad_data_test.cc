// Data a user got wrong: each row is one mistake and the sentence it must give.

#include <functional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/data/token_dataset.h"
#include "tests/data/token_bytes.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

using testing::HasSubstr;

struct BadData {
  const char* name;
  std::string file_bytes;  // of data.bin, absent when `no_file`
  bool no_file = false;
  std::function<void(DatasetOptions&)> change;  // of sequence 4 over FOLDER/data.bin
  const char* sentence;
};

void tokens(DatasetOptions& options, TokenFormat format) {
  options.data.kind = DataKind::kTokens;
  options.data.token_format = format;
}
auto as(TokenFormat format) {
  return [format](DatasetOptions& options) { tokens(options, format); };
}
auto file(const char* name) {
  return [name](DatasetOptions& options) {
    std::string& path = options.data.files[0];
    path = path.substr(0, path.rfind('/') + 1) + name;
  };
}

const std::string kText(100, 'x');
const std::vector<std::uint16_t> kTokens(100, 7);

const std::vector<BadData> kBadData = {
    {"NoFilesNamed", kText, false, [](auto& o) { o.data.files.clear(); },
     "[data] files is empty: name at least one file or glob"},
    {"NoFileMatchesName", "", true, file("data.bin"), "no file matches \""},
    {"NoFileMatchesGlob", kText, false, file("*.txt"), "*.txt\": check the path"},
    {"FolderInsteadOfFiles", kText, false, file(""), "is a folder: name the files in it"},
    {"EmptyFile", "", false, [](auto&) {}, "data.bin: the file is empty"},
    {"OnlyEmptyFilesMatch", "", false, file("*.bin"), "all files that match are empty"},
    {"EmptyTokenFile", "", false, as(TokenFormat::kUint16), "data.bin: the file is empty"},
    {"TooShortForOneSequence", "abc", false, [](auto&) {},
     "[data] files hold 4 tokens, and one sequence needs 5 ([batch] sequence + 1)"},
    {"TooFewTokens", raw_tokens<std::uint16_t>({1, 2, 3, 4}), false, as(TokenFormat::kUint16),
     "[data] files hold 4 tokens, and one sequence needs 5"},
    {"BytesMaxLeavesTooLittle", kText, false, [](auto& o) { o.data.bytes_max = 2; },
     "[data] files hold 3 tokens, and one sequence needs 5"},
    {"BytesMaxLeavesNothing", raw_tokens(kTokens), false,
     [](auto& o) {
       tokens(o, TokenFormat::kUint32);
       o.data.bytes_max = 3;
     },
     "empty or beyond bytes_max"},
    {"HeldOutIsEverything", kText, false, [](auto& o) { o.data.held_out = 0.99; },
     "leaves none to train on"},
    {"HeldOutOfASingleSequence", "abcd", false, [](auto& o) { o.data.held_out = 0.1; },
     "[data] files give 1 sequences of 4 tokens, and held_out = 0.1 leaves none"},
    {"HeldOutIsOne", kText, false, [](auto& o) { o.data.held_out = 1; },
     "[data] held_out is 1: use a share of the sequences from 0 up to but not including 1"},
    {"HeldOutIsNegative", kText, false, [](auto& o) { o.data.held_out = -0.5; },
     "[data] held_out is -0.5"},
    {"HeldOutIsNoNumber", kText, false, [](auto& o) { o.data.held_out = 0.0 / 0.0; },
     "[data] held_out is "},
    {"VocabTooSmallForBytes", kText, false, [](auto& o) { o.vocab = 256; },
     "[model] vocab is 256, but [data] kind = \"bytes\" needs 257"},
    {"VocabTooLarge", kText, false, [](auto& o) { o.vocab = 1U << 25; },
     "[model] vocab is 33554432: at most 16777216"},
    {"OddBytesForUint16", raw_tokens(kTokens) + "x", false, as(TokenFormat::kUint16),
     "data.bin: 201 bytes are no whole number of uint16 tokens"},
    {"OddBytesForUint32", raw_tokens(kTokens) + "xy", false, as(TokenFormat::kUint32),
     "data.bin: 202 bytes are no whole number of uint32 tokens"},
    {"OddBytesFoundByAuto", raw_tokens(kTokens) + "x", false, as(TokenFormat::kAuto),
     "data.bin: 201 bytes are no whole number of uint16 tokens"},
    {"TextAsUint32", kText, false, as(TokenFormat::kUint32),
     "data.bin: token 2021161080 at byte 0 is no token number: is [data] token_format right?"},
    {"AutoCannotTell", raw_tokens(kTokens), false,
     [](auto& o) {
       tokens(o, TokenFormat::kAuto);
       std::filesystem::rename(o.data.files[0], o.data.files[0] + ".tok");
       o.data.files[0] += ".tok";
     },
     "cannot tell the token format (no llm.c header, and not a .bin file)"},
    {"LlmcShorterThanItsHeader", kText, false, as(TokenFormat::kLlmC),
     "data.bin: 100 bytes are too few for llm.c's header of 1024"},
    {"LlmcBadMagic", llmc_file(kTokens, 100, 20240521), false, as(TokenFormat::kLlmC),
     "it starts with 20240521 instead of the magic number 20240520"},
    {"LlmcNewerVersion", llmc_file(kTokens, 100, 20240520, 2), false, as(TokenFormat::kLlmC),
     "llm.c token file of version 2; only version 1 is understood"},
    {"LlmcCutShort", llmc_file(kTokens, 101), false, as(TokenFormat::kLlmC),
     "the header promises 101 tokens of 2 bytes, but 200 bytes follow it"},
    {"LlmcTooLong", llmc_file(kTokens, 99), false, as(TokenFormat::kAuto),
     "the header promises 99 tokens of 2 bytes, but 200 bytes follow it"},
    {"LlmcOddByte", llmc_file(kTokens, 100) + "x", false, as(TokenFormat::kAuto),
     "the header promises 100 tokens of 2 bytes, but 201 bytes follow it"},
    {"LlmcNegativeCount", llmc_file(kTokens, -1), false, as(TokenFormat::kAuto),
     "promises -1 tokens"},
};

class BadDataTest : public testing::TestWithParam<BadData> {};

TEST_P(BadDataTest, IsRefusedWithItsSentence) {
  const TempFolder folder;
  const BadData& row = GetParam();
  if (!row.no_file) folder.write("data.bin", row.file_bytes);
  DatasetOptions options{.sequence = 4, .seed = 1};
  options.data.files = {folder.at("data.bin")};
  row.change(options);
  const auto dataset = TokenDataset::open(options);
  ASSERT_FALSE(dataset);
  EXPECT_EQ(dataset.error().code, ErrorCode::kUserMistake);
  EXPECT_THAT(dataset.error().what, HasSubstr(row.sentence));
}

INSTANTIATE_TEST_SUITE_P(All, BadDataTest, testing::ValuesIn(kBadData),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace swarmline
