// What is random, keyed or compared in secret (OpenSSL).
//   Thread: any. Errors: none; a system without random bytes ends the process.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/identity/key_hash.h"

namespace swarmline {

using Digest = std::array<std::uint8_t, 32>;
inline constexpr std::size_t kSecretBytes = 32;  // of a secret that proofs are made with

std::string random_secret(std::size_t bytes);
Digest sha256_of(std::string_view bytes);
Digest hmac_sha256(std::string_view key, std::string_view message);
std::string as_string(const Digest& digest);  // its 32 bytes
// Takes as long whatever they are; the lengths are no secret.
bool equal_in_secret(std::string_view a, std::string_view b);

}  // namespace swarmline
