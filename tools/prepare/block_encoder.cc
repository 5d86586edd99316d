#include "tools/prepare/block_encoder.h"

#include <fmt/format.h>

#include "engine/tokenizer/utf8.h"
#include "tools/prepare/json_line.h"
#include "tools/prepare/row_records.h"

namespace swarmline {

BlockEncoder::BlockEncoder(const Tokenizer& tokenizer, DocumentRules rules)
    : rules_(std::move(rules)),
      counts_replaced_(tokenizer.kind() != "bytes"),
      encoder_(tokenizer.make_encoder({.special_as_text = rules_.special_as_text})) {}

Result<EncodedBlock> BlockEncoder::encode(const TextBlock& block, const TextInput& input) {
  EncodedBlock out;
  if (input.kind == InputKind::kText) {
    if (auto added = add_text(block.text, block.begins_document, block.ends_document, out); !added)
      return fail(added.error().code, fmt::format("{}: {}", input.path, added.error().what));
  } else if (input.kind == InputKind::kParquet) {
    SWARMLINE_TRY(add_rows(block, input, out));
  } else {
    SWARMLINE_TRY(add_lines(block, input, out));
  }
  return out;
}

Result<void> BlockEncoder::add_text(std::string_view text, bool begins, bool ends,
                                    EncodedBlock& out) {
  if (begins && rules_.begin) out.tokens.push_back(*rules_.begin);
  out.text_bytes += text.size();
  if (counts_replaced_ && !is_utf8(text)) {
    room_.clear();
    out.replaced += append_as_utf8(text, room_);
    text = room_;
  }
  SWARMLINE_TRY(encoder_->encode(text, !ends, out.tokens));
  if (!ends) return {};
  if (rules_.end) out.tokens.push_back(*rules_.end);
  ++out.documents;
  return {};
}

Result<void> BlockEncoder::add_rows(const TextBlock& block, const TextInput& input,
                                    EncodedBlock& out) {
  std::string_view left = block.text;
  for (std::uint64_t number = block.first_line + 1; !left.empty(); ++number) {
    const auto bad_row = [&](ErrorCode code, std::string_view what) {
      return fail(code, fmt::format("{}: row {}: {}", input.path, number, what));
    };
    const auto row = take_row(left);
    if (!row) return bad_row(ErrorCode::kIo, "the reader of Parquet gave only a part of it");
    if (!row->text && !rules_.skip_bad_lines)
      return bad_row(ErrorCode::kUserMistake,
                     "found no text (null), expected one; --skip-bad-lines leaves such rows out");
    if (!row->text) ++out.skipped;
    if (!row->text || row->text->empty()) continue;
    if (auto added = add_text(*row->text, true, true, out); !added)
      return bad_row(added.error().code, added.error().what);
  }
  return {};
}

Result<void> BlockEncoder::add_lines(const TextBlock& block, const TextInput& input,
                                     EncodedBlock& out) {
  std::string_view left = block.text;
  for (std::uint64_t number = block.first_line + 1; !left.empty(); ++number) {
    const std::size_t end = std::min(left.find('\n'), left.size());
    std::string_view line = left.substr(0, end);
    left.remove_prefix(std::min(end + 1, left.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    std::string text;
    if (input.kind == InputKind::kJsonl) {
      auto found = text_of_json_line(line, rules_.text_key);
      if (!found && rules_.skip_bad_lines) {
        ++out.skipped;
        continue;
      }
      if (!found)
        return fail(ErrorCode::kUserMistake,
                    fmt::format("{}:{}: {}", input.path, number, found.error().what));
      text = std::move(*found);
      line = text;
    }
    if (line.empty()) continue;
    if (auto added = add_text(line, true, true, out); !added)
      return fail(added.error().code,
                  fmt::format("{}:{}: {}", input.path, number, added.error().what));
  }
  return {};
}

}  // namespace swarmline
