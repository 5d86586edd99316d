// The fingerprint of a public key: SHA-256 of its SubjectPublicKeyInfo (RFC 5280, 4.1.2.7), which
// `openssl pkey -pubin -outform DER | sha256sum` prints. A process is known by it.
//   Thread: any. Errors: kCorrupt of text that is none.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace swarmline {

struct KeyHash {
  static constexpr std::size_t kBytes = 32;
  std::array<std::uint8_t, kBytes> bytes{};
  auto operator<=>(const KeyHash&) const = default;
};

std::string to_hex(BytesView bytes);  // two lower-case digits each
// Exactly as to_hex writes it, of `bytes` bytes.
Result<std::string> from_hex(std::string_view text, std::size_t bytes);

std::string to_string(const KeyHash& hash);   // 64 lower-case hex digits
std::string short_text(const KeyHash& hash);  // the first 16 of them, for people
Result<KeyHash> parse_key_hash(std::string_view text);

}  // namespace swarmline
