#include "base/printable.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

namespace swarmline {
namespace {

constexpr bool is_ascii_printable(unsigned char c) {
  return c >= 0x20 && c < 0x7F;
}

// Of the well-formed UTF-8 sequence that begins here: its bytes (0: it is none) and its code point.
struct Decoded {
  std::size_t bytes = 0;
  std::uint32_t code = 0;
};

Decoded decode_utf8(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const std::size_t bytes = lead < 0x80   ? 1
                            : lead < 0xC2 ? 0
                            : lead < 0xE0 ? 2
                            : lead < 0xF0 ? 3
                            : lead < 0xF5 ? 4
                                          : 0;
  if (bytes == 0 || bytes > text.size()) return {};
  if (bytes == 1) return {1, lead};
  std::uint32_t code = lead & (0xFFU >> (bytes + 1));
  for (const char next : text.substr(1, bytes - 1)) {
    const auto byte = static_cast<unsigned char>(next);
    if ((byte & 0xC0U) != 0x80) return {};
    code = code << 6U | (byte & 0x3FU);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  return code < kLeast[bytes] || code > 0x10FFFF || surrogate ? Decoded{} : Decoded{bytes, code};
}

// Beyond ASCII: C1 controls, and marks that are not seen but change how the rest is shown.
bool is_hidden(std::uint32_t code) {
  return (code >= 0x80 && code < 0xA0) || (code >= 0x200B && code <= 0x200F) ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF;
}

template <typename Keeps>
std::string made_printable(std::string_view text, Keeps keeps) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Decoded next = decode_utf8(text);
    const bool shown =
        next.bytes == 1
            ? is_ascii_printable(static_cast<unsigned char>(text.front())) || keeps(text.front())
            : next.bytes > 0 && !is_hidden(next.code);
    const std::size_t bytes = std::max<std::size_t>(next.bytes, 1);
    for (const char c : text.substr(0, bytes))
      out += shown ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    text.remove_prefix(bytes);
  }
  return out;
}

}  // namespace

bool is_printable(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return is_ascii_printable(static_cast<unsigned char>(c)); });
}

std::string printable(std::string_view text, std::size_t bytes_max) {
  std::string out = made_printable(text.substr(0, bytes_max), [](char) { return false; });
  out.resize(std::min(out.size(), bytes_max));
  return out;
}

std::string printable_lines(std::string_view text) {
  return made_printable(text, [](char c) { return c == '\n' || c == '\t'; });
}

}  // namespace swarmline
