// UTF-8: whether bytes are, what is put in the place of those that are not, and text that comes in
// pieces.
//   Thread: pure; a Utf8Stream is one thread's.
//   Source: Unicode 15, chapter 3.9, table 3-7; U+FFFD takes the place of each maximal subpart, as
//           Python's errors="replace" does it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace swarmline {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The number of bytes from the beginning that are whole, valid characters.
std::size_t valid_utf8_prefix(std::string_view text);
inline bool is_utf8(std::string_view text) {
  return valid_utf8_prefix(text) == text.size();
}

// Appends `bytes` with replacements; returns how many there were.
std::uint64_t append_as_utf8(std::string_view bytes, std::string& text);

struct CodePoint {
  std::uint32_t value = 0;
  std::size_t bytes = 0;  // 0: there is none
};
// Of valid UTF-8.
CodePoint first_code_point(std::string_view text);
// Unicode's White_Space.
bool is_white_space(std::uint32_t code_point);

// Bytes as they come out of tokens, which end anywhere: a character is held back until it is whole.
class Utf8Stream {
 public:
  // What has become whole by these bytes.
  std::string push(std::string_view bytes);
  // What is left over, replaced.
  std::string finish();

 private:
  std::string held_;  // at most 3 bytes
};

}  // namespace swarmline
