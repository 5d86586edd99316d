#include "engine/tokenizer/utf8.h"

#include <cstring>

namespace swarmline {

namespace {

constexpr std::uint64_t kHighBits = 0x8080808080808080ULL;

bool continues(unsigned char byte) {
  return (byte & 0xC0U) == 0x80U;
}

// One character, or the maximal subpart of one, at the beginning of a text that is not empty.
struct Unit {
  std::size_t bytes = 1;
  bool valid = false;
  bool cut = false;  // more bytes might make it valid
};

Unit first_unit(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return {.valid = true};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range keeps out what is too long, surrogates and what lies beyond U+10FFFF.
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (text.size() < 2) return {.cut = true};
  if (at(1) < low || at(1) > high) return {};
  for (std::size_t i = 2; i < length; ++i) {
    if (i == text.size()) return {.bytes = i, .cut = true};
    if (!continues(at(i))) return {.bytes = i};
  }
  return {.bytes = length, .valid = true};
}

std::size_t skip_ascii(std::string_view text, std::size_t at) {
  for (std::uint64_t eight = 0; at + sizeof eight <= text.size(); at += sizeof eight) {
    std::memcpy(&eight, text.data() + at, sizeof eight);
    if ((eight & kHighBits) != 0) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t at = skip_ascii(text, 0);
  while (at < text.size()) {
    const Unit unit = first_unit(text.substr(at));
    if (!unit.valid) return at;
    at = skip_ascii(text, at + unit.bytes);
  }
  return at;
}

std::uint64_t append_as_utf8(std::string_view bytes, std::string& text) {
  std::uint64_t replaced = 0;
  while (!bytes.empty()) {
    const std::size_t valid = valid_utf8_prefix(bytes);
    text += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    text += kReplacement;
    bytes.remove_prefix(first_unit(bytes).bytes);
    ++replaced;
  }
  return replaced;
}

CodePoint first_code_point(std::string_view text) {
  if (text.empty()) return {};
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = at(0);
  if (lead < 0x80) return {.value = lead, .bytes = 1};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  std::uint32_t value = lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) value = value << 6 | (at(i) & 0x3FU);
  return {.value = value, .bytes = length};
}

bool is_white_space(std::uint32_t code_point) {
  if (code_point < 0x80) return code_point == ' ' || (code_point >= 0x09 && code_point <= 0x0D);
  return code_point == 0x85 || code_point == 0xA0 || code_point == 0x1680 ||
         (code_point >= 0x2000 && code_point <= 0x200A) || code_point == 0x2028 ||
         code_point == 0x2029 || code_point == 0x202F || code_point == 0x205F ||
         code_point == 0x3000;
}

std::string Utf8Stream::push(std::string_view bytes) {
  held_ += bytes;
  std::string text;
  std::string_view left = held_;
  while (!left.empty()) {
    const std::size_t valid = valid_utf8_prefix(left);
    text += left.substr(0, valid);
    left.remove_prefix(valid);
    if (left.empty()) break;
    const Unit unit = first_unit(left);
    if (unit.cut) break;
    text += kReplacement;
    left.remove_prefix(unit.bytes);
  }
  held_ = std::string(left);
  return text;
}

std::string Utf8Stream::finish() {
  std::string text;
  append_as_utf8(held_, text);
  held_.clear();
  return text;
}

}  // namespace swarmline
