// Words of a line of text, parted by blanks. Pure.
#pragma once

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

namespace swarmline {

// Taken off the front of `text`; empty at its end.
inline std::string_view next_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size());
  return word;
}

// The next word as a number; false (and `value` is not to be used) when it is none.
template <typename Number>
bool take_value(std::string_view& text, Number& value) {
  const std::string_view word = next_word(text);
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size();
}

}  // namespace swarmline
