// Transport checksums (XXH3-64) and a running hash for traces and digests. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"

namespace swarmline {

std::uint64_t xxh3(BytesView bytes);
std::uint64_t xxh3(BytesView bytes, std::uint64_t seed);
std::uint64_t xxh3_of_both(BytesView first, BytesView second);  // as if they were one
std::string hex64(std::uint64_t value);                         // 16 lower-case hex digits

// Order-sensitive: the hash of a sequence of words and names.
class RollingHash {
 public:
  void add(std::uint64_t word);
  void add(BytesView bytes) { add(xxh3(bytes)); }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0x53574152'4D4C494EULL;
};

}  // namespace swarmline
