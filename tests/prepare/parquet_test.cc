// Parquet without pyarrow: shell scripts stand for the Python that reads it. What the real reader
// gives, parquet_prepare.py tells.
#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "tests/store/temp_folder.h"
#include "tests/tokenizer/fixtures.h"
#include "tools/prepare/prepare.h"
#include "tools/prepare/row_records.h"
#include "tools/prepare/text_inputs.h"

namespace swarmline {
namespace {

std::string little_endian(std::uint64_t value, std::size_t bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

std::string record(const std::string& text) {
  return little_endian(text.size(), 4) + text;
}
const std::string kNull = little_endian(kNoText, 4);

TEST(RowRecords, AreTakenOffWhole) {
  const std::string two = record("one") + kNull + record("");
  std::string_view left = two;
  EXPECT_EQ(take_row(left)->text, "one");
  EXPECT_EQ(take_row(left)->text, std::nullopt);
  EXPECT_EQ(take_row(left)->text, "");
  EXPECT_FALSE(take_row(left));
  EXPECT_EQ(whole_rows(two).rows, 3U);
  for (std::size_t bytes = 0; bytes < two.size(); ++bytes) {
    const WholeRows whole = whole_rows(std::string_view(two).substr(0, bytes));
    EXPECT_EQ(whole.rows, bytes < 7 ? 0U : bytes < 11 ? 1U : 2U) << bytes;
    EXPECT_EQ(whole.bytes, bytes < 7 ? 0U : bytes < 11 ? 7U : 11U) << bytes;
  }
}

class ParquetTest : public testing::Test {
 protected:
  // A program that stands for Python: it is called with -c SCRIPT FILE COLUMN FIRST_ROW.
  std::string program(const std::string& script) {
    const std::string path = folder_.write("python", "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  // One that gives these records from the beginning, each of `bytes` bytes.
  std::string giving(const std::string& records, std::size_t bytes) {
    folder_.write("head", little_endian(records.size(), 8));
    folder_.write("records", records);
    return program("cat " + folder_.at("head") + "; exec tail -c +$((${5} * " +
                   std::to_string(bytes) + " + 1)) " + folder_.at("records"));
  }
  PrepareOptions options(const std::string& python) {
    folder_.write("a.parquet", "any");
    auto inputs = find_text_inputs(std::vector<std::string>{folder_.at("a.parquet")}, std::nullopt);
    EXPECT_TRUE(inputs);
    EXPECT_EQ(inputs->front().kind, InputKind::kParquet);
    PrepareOptions made{.inputs = *inputs,
                        .folder = folder_.at("out"),
                        .tokenizer = *open_tokenizer("bytes"),
                        .tokenizer_name = "bytes",
                        .python = python,
                        .threads = 2};
    made.rules.end = made.tokenizer->document_end();
    return made;
  }
  std::string failure(const std::string& python) {
    const auto made = prepare_data(options(python));
    return made ? "" : made.error().what;
  }
  std::string path() const { return folder_.at("a.parquet"); }

  TempFolder folder_;
};

TEST_F(ParquetTest, EachRowIsADocumentAndEmptyOnesAreNone) {
  auto wanted = options(giving(record("ab") + record("") + record("c"), 0));
  const auto made = prepare_data(wanted);
  ASSERT_TRUE(made) << made.error().what;
  EXPECT_EQ(made->manifest.documents, 2U);
  EXPECT_EQ(made->manifest.tokens, 5U);
}

TEST_F(ParquetTest, RowsWithoutATextAreNamedOrCounted) {
  const std::string python = giving(record("ab") + kNull + record("c"), 0);
  EXPECT_EQ(failure(python), path() +
                                 ": row 2: found no text (null), expected one; "
                                 "--skip-bad-lines leaves such rows out");
  auto skipping = options(python);
  skipping.rules.skip_bad_lines = true;
  const auto made = prepare_data(skipping);
  ASSERT_TRUE(made) << made.error().what;
  EXPECT_EQ(made->skipped, 1U);
  EXPECT_EQ(made->manifest.documents, 2U);
}

TEST_F(ParquetTest, WhoGoesOnAtAnyBlockGetsTheSameBlocks) {
  std::string records;
  const std::size_t rows = 40, bytes = 30'000;
  for (std::size_t row = 0; row < rows; ++row)
    records += record(std::string(bytes - 4, static_cast<char>('a' + row % 26)));
  const PrepareOptions wanted = options(giving(records, bytes));
  const auto blocks_from = [&](InputPlace place) {
    TextBlocks blocks(wanted.inputs, TextCuts::kAnywhere, place, {.python = wanted.python});
    std::vector<TextBlock> made;
    for (auto block = blocks.next(); block && *block; block = blocks.next())
      made.push_back(std::move(**block));
    EXPECT_EQ(blocks.consumed(), wanted.inputs.front().bytes);
    return made;
  };
  const std::vector<TextBlock> all = blocks_from({});
  ASSERT_GT(all.size(), 3U);
  std::string text;
  for (const TextBlock& block : all) text += block.text;
  EXPECT_EQ(text, records);
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    const std::vector<TextBlock> rest = blocks_from(all[i].after);
    ASSERT_EQ(rest.size(), all.size() - i - 1);
    for (std::size_t j = 0; j < rest.size(); ++j) {
      EXPECT_EQ(rest[j].text, all[i + 1 + j].text);
      EXPECT_EQ(rest[j].first_line, all[i + 1 + j].first_line);
      EXPECT_EQ(rest[j].after, all[i + 1 + j].after);
    }
  }
}

TEST_F(ParquetTest, MistakesAreOneSentence) {
  EXPECT_EQ(failure("no-such-python"),
            path() +
                ": found no program no-such-python, expected a Python with pyarrow, which "
                "reads Parquet; install it, or name another by --python");
  EXPECT_EQ(failure(program("echo noise >&2; echo what is wrong >&2; exit 2")), "what is wrong");
  EXPECT_EQ(failure(program("exit 2")), "it said nothing");
  const std::string python = folder_.at("python");
  EXPECT_EQ(failure(program("echo '\033[1mcolours' >&2; exit 3")),
            path() + ": the reader of Parquet (" + python + ") ended with 3: \\x1b[1mcolours");
  EXPECT_EQ(failure(program("kill -9 $$")),
            path() + ": the reader of Parquet (" + python + ") ended with 137: it said nothing");
  // It ends well, but in the middle of a row.
  EXPECT_EQ(failure(giving(record("ab") + "\x05", 0)),
            path() + ": row 2: the reader of Parquet gave only a part of it");
  const auto stream = find_text_inputs(std::vector<std::string>{"-"}, InputKind::kParquet);
  ASSERT_FALSE(stream);
  EXPECT_EQ(stream.error().what, "Parquet can't be read from standard input; name its file");
}

// Whoever stops early does not wait for a reader that never ends.
TEST_F(ParquetTest, AReaderEndsWithItsSource) {
  const std::string python =
      program("echo $$ > " + folder_.at("pid") + "; cat /dev/zero; sleep 1000");
  auto source = open_parquet_rows(path(), 1, {.python = python}, {});
  ASSERT_TRUE(source) << source.error().what;
  std::string room(1000, 'x');
  EXPECT_EQ((*source)->read(room), 1000U);
  source->reset();
  const auto pid = slurp(folder_.at("pid"));
  EXPECT_FALSE(std::filesystem::exists("/proc/" + pid.substr(0, pid.find('\n'))));
}

}  // namespace
}  // namespace swarmline
