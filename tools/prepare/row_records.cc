#include "tools/prepare/row_records.h"

namespace swarmline {

namespace {

constexpr std::size_t kLengthBytes = 4;

std::uint32_t length_at_front(std::string_view text) {
  std::uint32_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;)
    length = (length << 8) | static_cast<unsigned char>(text[i]);
  return length;
}

}  // namespace

std::optional<RowRecord> take_row(std::string_view& left) {
  if (left.size() < kLengthBytes) return std::nullopt;
  const std::uint32_t length = length_at_front(left);
  if (length == kNoText) {
    left.remove_prefix(kLengthBytes);
    return RowRecord{};
  }
  if (left.size() - kLengthBytes < length) return std::nullopt;
  const RowRecord row{.text = left.substr(kLengthBytes, length)};
  left.remove_prefix(kLengthBytes + length);
  return row;
}

WholeRows whole_rows(std::string_view text) {
  std::string_view left = text;
  WholeRows whole;
  while (take_row(left)) ++whole.rows;
  whole.bytes = text.size() - left.size();
  return whole;
}

}  // namespace swarmline
