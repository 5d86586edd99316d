#include "tools/prepare/text_blocks.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/data/data_files.h"
#include "engine/tokenizer/text_cut.h"
#include "engine/tokenizer/utf8.h"
#include "tools/prepare/row_records.h"

namespace swarmline {

namespace {

constexpr std::size_t kLookedAt = 64 * kKiB;  // of an input, for whether it is text
constexpr std::size_t kOddShare = 20;         // a text has one odd byte in so many at most

}  // namespace

TextBlocks::TextBlocks(std::vector<TextInput> inputs, TextCuts cuts, InputPlace from,
                       ParquetReading parquet)
    : inputs_(std::move(inputs)), cuts_(cuts), parquet_(std::move(parquet)), place_(from) {
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(from.input, inputs_.size()); ++i)
    before_ += inputs_[i].bytes;
}

Result<void> TextBlocks::fill(std::size_t bytes) {
  const std::size_t had = held_.size();
  if (at_end_ || had >= bytes) return {};
  held_.resize(bytes);
  const auto got = source_->read(std::span(held_).subspan(had));
  held_.resize(had + got.value_or(0));
  if (!got) return std::unexpected(got.error());
  at_end_ = held_.size() < bytes;
  return {};
}

// Pictures, archives and tables are not prepared as if they were text.
Result<void> TextBlocks::check_first(const std::string& path) {
  const std::string_view first = std::string_view(held_).substr(0, kLookedAt);
  if (const auto packed = find_packed("", first))
    return fail(ErrorCode::kUserMistake,
                fmt::format("{}: this is {}, expected text; unpack it first, or leave it out", path,
                            packed->what));
  std::string replaced;
  const std::uint64_t odd =
      append_as_utf8(first, replaced) + static_cast<std::uint64_t>(std::ranges::count(first, '\0'));
  if (odd * kOddShare > first.size())
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("{}: found {} bytes that are no UTF-8 text among the first {}; leave the file "
                    "out, or convert it (iconv -t UTF-8)",
                    path, odd, first.size()));
  return {};
}

// At the place that is next.
Result<std::unique_ptr<ByteSource>> TextBlocks::open(const TextInput& input) const {
  if (input.kind == InputKind::kParquet)
    return open_parquet_rows(input.path, input.bytes, parquet_,
                             {.row = place_.line, .offset = place_.offset});
  auto source = open_byte_source(input.path);
  if (source && place_.offset > 0) SWARMLINE_TRY(skip_bytes(**source, place_.offset, input.path));
  return source;
}

Result<void> TextBlocks::open_next() {
  const TextInput& input = inputs_[place_.input];
  auto source = open(input);
  if (!source) return std::unexpected(std::move(source).error());
  source_ = std::move(*source);
  at_end_ = false;
  held_.clear();
  if (place_.offset > 0) return {};
  SWARMLINE_TRY(fill(kBlockBytes));
  if (held_.empty() && ++empty_inputs_ <= kEmptyInputsNamed)
    warnings_.push_back(fmt::format("{}: the input is empty; it is left out", input.path));
  return kind() == InputKind::kParquet ? Result<void>{} : check_first(input.path);
}

// How much of the first `window` bytes of `held_` is the next block; 0: more is needed. It looks at
// no more, so that who goes on from here later cuts in the same places.
Result<std::size_t> TextBlocks::find_cut(std::size_t window) {
  const std::string_view text = std::string_view(held_).substr(0, window);
  if (at_end_ && text.size() == held_.size()) return text.size();
  std::size_t cut = 0;
  if (kind() == InputKind::kParquet) {
    cut = whole_rows(text).bytes;
  } else if (kind() != InputKind::kText) {
    cut = text.rfind('\n') + 1;
  } else if (cuts_ == TextCuts::kAnywhere) {
    cut = text.size();
  } else if (cuts_ == TextCuts::kBetweenWords) {
    cut = last_text_cut(text);
  }
  if (cut > 0 || window < kDocumentBytesMax) return cut;
  const std::string& path = inputs_[place_.input].path;
  if (kind() != InputKind::kText)
    return fail(ErrorCode::kUserMistake,
                fmt::format("{}:{}: found a {} of more than {} bytes, expected shorter ones", path,
                            place_.line + 1, kind() == InputKind::kParquet ? "row" : "line",
                            kDocumentBytesMax));
  warnings_.push_back(
      fmt::format("{}: {} bytes from byte {} on are encoded apart: this tokenizer can't cut such a "
                  "document, and it is too long for one piece",
                  path, text.size(), place_.offset));
  const std::size_t line = text.rfind('\n') + 1;
  return line > 0 ? line : text.size();
}

std::uint64_t TextBlocks::lines_of(std::string_view text) const {
  if (kind() == InputKind::kText) return 0;
  if (kind() == InputKind::kParquet) return whole_rows(text).rows;
  return static_cast<std::uint64_t>(std::ranges::count(text, '\n'));
}

Result<std::size_t> TextBlocks::next_cut() {
  for (std::size_t window = kBlockBytes;; window *= 2) {
    SWARMLINE_TRY(fill(window));
    const auto cut = find_cut(window);
    if (!cut || *cut > 0 || held_.empty()) return cut;
  }
}

Result<std::optional<TextBlock>> TextBlocks::next() {
  while (place_.input < inputs_.size()) {
    if (!source_) SWARMLINE_TRY(open_next());
    const auto cut = next_cut();
    if (!cut) return std::unexpected(cut.error());
    const bool ends = at_end_ && *cut == held_.size();
    TextBlock block{.text = held_.substr(0, *cut),
                    .input = place_.input,
                    .first_line = place_.line,
                    .begins_document = place_.offset == 0,
                    .ends_document = ends};
    held_.erase(0, *cut);
    place_.offset += *cut;
    place_.line += lines_of(block.text);
    const bool has_something =
        !block.text.empty() || (kind() == InputKind::kText && !block.begins_document);
    if (ends) {
      before_ += source_->consumed();
      source_.reset();
      place_ = {.input = place_.input + 1};
    }
    block.after = place_;
    if (has_something) return block;
  }
  if (const std::uint64_t empty = std::exchange(empty_inputs_, 0); empty > kEmptyInputsNamed)
    warnings_.push_back(fmt::format("{} inputs in all are empty; they are left out", empty));
  return std::nullopt;
}

}  // namespace swarmline
