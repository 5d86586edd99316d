// Sizes and data that the tests of kernels, codecs and optimizers share.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/rng.h"

namespace swarmline::testing {

inline constexpr std::array<std::size_t, 18> kSizes = {
    0, 1, 31, 32, 33, 63, 64, 65, 255, 256, 257, 4095, 4096, 4097, 65535, 65536, 65537, 1'000'003};

// Finite values over many magnitudes, of both signs, with zeros and (in fp32) subnormals among
// them.
template <typename T>
std::vector<T> samples(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<T> values(n);
  for (T& value : values) {
    const std::uint32_t bits = rng.next_u32();
    const int exponent = static_cast<int>(bits % 25) - 12;
    value = static_cast<T>(std::ldexp(unit_float(bits) - 0.5F, exponent));
    if (bits % 101 == 0) value = 0;
    if (bits % 103 == 0) value = static_cast<T>(std::ldexp(unit_float(bits), -130));
  }
  return values;
}

// n elements at an address that is `misaligned_bytes` past a 64-byte boundary, between canaries.
template <typename T>
class Guarded {
 public:
  explicit Guarded(std::size_t n, std::size_t misaligned_bytes = 0)
      : n_(n), bytes_(n * sizeof(T) + 3 * kGuard, kCanary) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data()) + kGuard;
    begin_ = kGuard + (64 - address % 64) % 64 + misaligned_bytes;
  }
  Guarded(const std::vector<T>& values, std::size_t misaligned_bytes)
      : Guarded(values.size(), misaligned_bytes) {
    if (n_ != 0) std::memcpy(bytes_.data() + begin_, values.data(), n_ * sizeof(T));
  }
  T* data() { return reinterpret_cast<T*>(bytes_.data() + begin_); }
  std::vector<T> values() const {
    std::vector<T> out(n_);
    if (n_ != 0) std::memcpy(out.data(), bytes_.data() + begin_, n_ * sizeof(T));
    return out;
  }
  bool intact() const {
    const std::size_t end = begin_ + n_ * sizeof(T);
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if ((i < begin_ || i >= end) && bytes_[i] != kCanary) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 128;
  static constexpr unsigned char kCanary = 0xA5;
  std::size_t n_;
  std::vector<unsigned char> bytes_;
  std::size_t begin_ = 0;
};

// Index of the first element whose bits differ, or n.
template <typename T>
std::size_t first_difference(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0) return i;
  }
  return a.size();
}

}  // namespace swarmline::testing
