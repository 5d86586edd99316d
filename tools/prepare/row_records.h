// Texts of a table's rows, one behind another, as a reader process gives them: of each a length of
// 32 bits (little-endian) and so many bytes, or kNoText alone.
//   Ownership: views of what is given. Thread: pure.
//   Bounds:    a length may say more than there is; then the record is not whole.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace swarmline {

inline constexpr std::uint32_t kNoText = 0xFFFFFFFF;

struct RowRecord {
  std::optional<std::string_view> text;
};

// Takes the first record off `left`; nothing where it is not whole.
std::optional<RowRecord> take_row(std::string_view& left);

struct WholeRows {
  std::size_t bytes = 0;
  std::uint64_t rows = 0;
};
// The whole records that `text` begins with.
WholeRows whole_rows(std::string_view text);

}  // namespace swarmline
