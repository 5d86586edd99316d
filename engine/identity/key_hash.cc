#include "engine/identity/key_hash.h"

#include <algorithm>

#include <fmt/format.h>

namespace swarmline {

std::string to_hex(BytesView bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text.push_back(kDigits[std::to_integer<std::size_t>(byte) >> 4U]);
    text.push_back(kDigits[std::to_integer<std::size_t>(byte) & 15U]);
  }
  return text;
}

Result<std::string> from_hex(std::string_view text, std::size_t bytes) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  const auto none = [&digit](char c) { return digit(c) < 0; };
  if (text.size() != 2 * bytes || std::ranges::any_of(text, none))
    return fail(ErrorCode::kCorrupt, fmt::format("expected {} lower-case hex digits", 2 * bytes));
  std::string result;
  for (std::size_t i = 0; i < text.size(); i += 2)
    result.push_back(static_cast<char>(16 * digit(text[i]) + digit(text[i + 1])));
  return result;
}

std::string to_string(const KeyHash& hash) {
  return to_hex(std::as_bytes(std::span(hash.bytes)));
}

std::string short_text(const KeyHash& hash) {
  return to_string(hash).substr(0, 16);
}

Result<KeyHash> parse_key_hash(std::string_view text) {
  const auto bytes = from_hex(text, KeyHash::kBytes);
  if (!bytes) return std::unexpected(bytes.error());
  KeyHash hash;
  std::ranges::copy(*bytes, hash.bytes.begin());
  return hash;
}

}  // namespace swarmline
