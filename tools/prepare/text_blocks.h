// The inputs as blocks of text: whole documents, or parts of one that are cut where its tokens
// allow (engine/tokenizer/text_cut.h). Which blocks there are depends on the inputs alone.
//   Kinds:   text: an input is one document; lines: each line is one; JSONL: a text of each line's
//            object is one; Parquet: a text of each row is one, and a block is records
//            (row_records.h). Blocks of the latter three end with a line or a row.
//   Thread:  one.
//   Errors:  kUserMistake with the input's path; kIo.
//   Bounds:  kBlockBytes, but for documents that can't be cut, lines and rows: kDocumentBytesMax.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "engine/tokenizer/tokenizer.h"
#include "tools/prepare/byte_source.h"
#include "tools/prepare/parquet_rows.h"

namespace swarmline {

inline constexpr std::size_t kBlockBytes = 256 * kKiB;
inline constexpr std::size_t kDocumentBytesMax = 256 * kMiB;

inline constexpr std::uint64_t kEmptyInputsNamed = 3;  // of the others only their number is said

enum class InputKind : std::uint8_t { kText, kLines, kJsonl, kParquet };

struct TextInput {
  std::string path;  // "-": standard input
  InputKind kind = InputKind::kText;
  std::uint64_t bytes = 0;  // of the file; 0: not known
};

// Where a block ends, and another run may go on.
struct InputPlace {
  std::uint64_t input = 0;   // its number
  std::uint64_t offset = 0;  // bytes of it, unpacked; of Parquet: of its records
  std::uint64_t line = 0;    // lines or rows before it
  bool operator==(const InputPlace&) const = default;
};

struct TextBlock {
  std::string text;
  std::uint64_t input = 0;
  std::uint64_t first_line = 0;  // from 0 on; of lines, JSONL and Parquet: a row
  bool begins_document = true;   // of text
  bool ends_document = true;
  InputPlace after;
};

class TextBlocks {
 public:
  TextBlocks(std::vector<TextInput> inputs, TextCuts cuts, InputPlace from = {},
             ParquetReading parquet = {});

  // Nothing: at the end of all inputs.
  Result<std::optional<TextBlock>> next();
  // Bytes of the inputs themselves that were taken so far.
  std::uint64_t consumed() const { return before_ + (source_ ? source_->consumed() : 0); }
  // What was found on the way, for people; handed out once.
  std::vector<std::string> take_warnings() { return std::exchange(warnings_, {}); }

 private:
  Result<std::unique_ptr<ByteSource>> open(const TextInput& input) const;
  Result<void> open_next();
  Result<void> fill(std::size_t bytes);
  Result<std::size_t> next_cut();
  Result<std::size_t> find_cut(std::size_t window);
  Result<void> check_first(const std::string& path);
  InputKind kind() const { return inputs_[place_.input].kind; }
  // How many lines or rows a block has.
  std::uint64_t lines_of(std::string_view text) const;

  std::vector<TextInput> inputs_;
  TextCuts cuts_;
  ParquetReading parquet_;
  InputPlace place_;  // of the first byte of `held_`
  std::unique_ptr<ByteSource> source_;
  std::string held_;
  bool at_end_ = false;  // of the source
  std::uint64_t before_ = 0;
  std::uint64_t empty_inputs_ = 0;
  std::vector<std::string> warnings_;
};

}  // namespace swarmline
