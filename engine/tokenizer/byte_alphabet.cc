#include "engine/tokenizer/byte_alphabet.h"

#include <array>

#include "engine/tokenizer/utf8.h"

namespace swarmline {

namespace {

constexpr std::size_t kCharacters =
    256 + 68;  // the last ones stand for bytes that aren't printable
constexpr int kNoByte = -1;

constexpr bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

constexpr auto kBytes = [] {
  std::array<int, kCharacters> bytes{};
  bytes.fill(kNoByte);
  int next = 256;
  for (int byte = 0; byte < 256; ++byte)
    bytes[static_cast<std::size_t>(stands_for_itself(byte) ? byte : next++)] = byte;
  return bytes;
}();

}  // namespace

std::optional<std::string> bytes_of_piece(std::string_view piece) {
  std::string bytes;
  while (!piece.empty()) {
    const CodePoint next = first_code_point(piece);
    if (next.value >= kCharacters || kBytes[next.value] == kNoByte) return std::nullopt;
    bytes += static_cast<char>(kBytes[next.value]);
    piece.remove_prefix(next.bytes);
  }
  return bytes;
}

}  // namespace swarmline
