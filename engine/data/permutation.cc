#include "engine/data/permutation.h"

#include <bit>

#include "base/check.h"
#include "base/rng.h"

namespace swarmline {

IndexPermutation::IndexPermutation(std::uint64_t size, std::uint64_t key) : size_(size) {
  SWARMLINE_CHECK(size >= 1 && size <= std::uint64_t{1} << 62);
  const auto bits = static_cast<int>(std::bit_width(size - 1));
  half_bits_ = bits <= 2 ? 1 : (bits + 1) / 2;
  half_mask_ = (std::uint64_t{1} << half_bits_) - 1;
  for (int i = 0; i < kRounds; ++i) keys_[i] = mix(key, static_cast<std::uint64_t>(i) + 1);
}

std::uint64_t IndexPermutation::round(int number, std::uint64_t half) const {
  return mix(keys_[number], half) & half_mask_;
}

std::uint64_t IndexPermutation::apply(std::uint64_t index) const {
  SWARMLINE_CHECK(index < size_);
  std::uint64_t value = index;
  do {
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & half_mask_;
    for (int i = 0; i < kRounds; ++i) {
      const std::uint64_t next = left ^ round(i, right);
      left = right;
      right = next;
    }
    value = left << half_bits_ | right;
  } while (value >= size_);
  return value;
}

std::uint64_t IndexPermutation::inverse(std::uint64_t value) const {
  SWARMLINE_CHECK(value < size_);
  std::uint64_t index = value;
  do {
    std::uint64_t left = index >> half_bits_;
    std::uint64_t right = index & half_mask_;
    for (int i = kRounds - 1; i >= 0; --i) {
      const std::uint64_t before = right ^ round(i, left);
      right = left;
      left = before;
    }
    index = left << half_bits_ | right;
  } while (index >= size_);
  return index;
}

}  // namespace swarmline
