#include "engine/tokenizer/text_table.h"

#include <bit>

#include "base/bytes.h"
#include "base/hash.h"

namespace swarmline {

TextTable::TextTable(std::size_t texts) : entries_(std::bit_ceil(2 * texts + 2)) {}

std::size_t TextTable::place(std::string_view text) const {
  std::size_t at = xxh3(as_bytes(text)) & (entries_.size() - 1);
  while (entries_[at].used && entries_[at].text != text) at = (at + 1) & (entries_.size() - 1);
  return at;
}

void TextTable::put(std::string_view text, std::uint32_t number) {
  Entry& entry = entries_[place(text)];
  if (entry.used) return;
  entry = {.text = text, .number = number, .used = true};
}

std::optional<std::uint32_t> TextTable::find(std::string_view text) const {
  const Entry& entry = entries_[place(text)];
  return entry.used ? std::optional(entry.number) : std::nullopt;
}

}  // namespace swarmline
