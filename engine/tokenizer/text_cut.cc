#include "engine/tokenizer/text_cut.h"

#include "engine/tokenizer/utf8.h"

namespace swarmline {

namespace {

constexpr std::size_t kCharacterBytesMax = 4;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool between_words(std::string_view text, std::size_t at) {
  return text[at] == ' ' && is_letter(text[at - 1]) && is_letter(text[at + 1]);
}

// Before a sign an added token may begin, which ends the text before it.
bool behind_a_line(std::string_view text, std::size_t at) {
  const char next = text[at];
  if (text[at - 1] != '\n') return false;
  if (is_letter(next) || (next >= '0' && next <= '9')) return true;
  const std::string_view character = text.substr(at, kCharacterBytesMax);
  return (static_cast<unsigned char>(next) & 0x80U) != 0 && valid_utf8_prefix(character) > 0 &&
         !is_white_space(first_code_point(character).value);
}

}  // namespace

std::size_t last_text_cut(std::string_view text) {
  std::size_t words = 0;
  // A line's end is preferred, if it is in the second half.
  for (std::size_t at = text.size(); at-- > 1;) {
    if (behind_a_line(text, at)) return at;
    if (words == 0 && at + 1 < text.size() && between_words(text, at)) words = at;
    if (words > 0 && at < text.size() / 2) break;
  }
  return words;
}

}  // namespace swarmline
