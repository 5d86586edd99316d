// SHA-256 of bytes that come in pieces (OpenSSL). Thread: one owner.
#pragma once

#include <memory>
#include <string>

#include "base/bytes.h"

namespace swarmline {

class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  ~Sha256();
  void update(BytesView bytes);
  std::string finish_hex();  // 64 lower-case hex digits; nothing may be added afterwards

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_hex(BytesView bytes);

}  // namespace swarmline
