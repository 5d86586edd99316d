// SHA-256 of bytes that come in pieces (OpenSSL). Thread: one owner.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/bytes.h"

namespace swarmline {

inline constexpr std::size_t kSha256HexDigits = 64;

class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  ~Sha256();
  void update(BytesView bytes);
  // kSha256HexDigits of them, lower case; nothing may be added afterwards.
  std::string finish_hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_hex(BytesView bytes);

}  // namespace swarmline
