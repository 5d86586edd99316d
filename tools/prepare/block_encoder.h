// Blocks of text into tokens: documents with what begins and ends them.
//   Thread:  one encoder a thread.
//   Errors:  kUserMistake with the input's path, and the line.
//   Bounds:  a block's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/tokenizer/tokenizer.h"
#include "tools/prepare/text_blocks.h"

namespace swarmline {

struct DocumentRules {
  std::optional<std::uint32_t> begin, end;  // tokens before and after each document
  std::string text_key = "text";            // of JSONL; of Parquet: the column
  bool special_as_text = false;
  bool skip_bad_lines = false;  // lines and rows without a text are counted and left out
};

struct EncodedBlock {
  std::vector<std::uint32_t> tokens;
  std::uint64_t documents = 0;  // that end in it
  std::uint64_t text_bytes = 0;
  std::uint64_t replaced = 0;  // bytes that were no UTF-8
  std::uint64_t skipped = 0;   // lines and rows that were left out
};

class BlockEncoder {
 public:
  BlockEncoder(const Tokenizer& tokenizer, DocumentRules rules);

  Result<EncodedBlock> encode(const TextBlock& block, const TextInput& input);

 private:
  Result<void> add_text(std::string_view text, bool begins, bool ends, EncodedBlock& out);
  Result<void> add_rows(const TextBlock& block, const TextInput& input, EncodedBlock& out);
  Result<void> add_lines(const TextBlock& block, const TextInput& input, EncodedBlock& out);

  DocumentRules rules_;
  bool counts_replaced_;
  std::unique_ptr<TokenEncoder> encoder_;
  std::string room_;
};

}  // namespace swarmline
