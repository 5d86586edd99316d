// Secrets of a run: random bytes, files that only their owner reads, and proofs of knowing one that
// do not say it (HMAC-SHA256, RFC 2104, by OpenSSL).
//   Thread: any; files as files.h.
//   Errors: kUserMistake where a secret's file may be read by others, or not by this user, with a
//           sentence; kNotFound, kIo.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace swarmline {

inline constexpr std::size_t kSecretBytes = 32;

std::string random_secret();  // kSecretBytes that nobody can guess
std::string random_hex();     // the same, as text
std::string hmac_sha256(std::string_view key, std::string_view text);  // 32 bytes
// Takes as long whatever they are.
bool equal_secrets(std::string_view one, std::string_view other);

// The secret in that file (hex, mode 0600); made where there is none.
Result<std::string> make_secret_file(const std::string& path);
Result<std::string> read_secret_file(const std::string& path);

}  // namespace swarmline
