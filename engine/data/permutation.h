// A seeded bijection on [0, size) and its inverse, by number: nothing is stored but the keys. A
// six-round Feistel network on the next even number of bits, walked until it falls into the range
// (fewer than four turns on average).
//   Thread: immutable.  Source: Black and Rogaway, "Ciphers with arbitrary finite domains", 2002.
#pragma once

#include <array>
#include <cstdint>

namespace swarmline {

class IndexPermutation {
 public:
  // 1 <= size <= 2^62.
  IndexPermutation(std::uint64_t size, std::uint64_t key);

  std::uint64_t size() const { return size_; }
  std::uint64_t apply(std::uint64_t index) const;    // index < size()
  std::uint64_t inverse(std::uint64_t value) const;  // inverse(apply(i)) == i

 private:
  static constexpr int kRounds = 6;
  std::uint64_t round(int number, std::uint64_t half) const;

  std::uint64_t size_;
  int half_bits_;
  std::uint64_t half_mask_;
  std::array<std::uint64_t, kRounds> keys_{};
};

}  // namespace swarmline
