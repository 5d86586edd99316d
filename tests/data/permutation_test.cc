#include "engine/data/permutation.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace swarmline {
namespace {

void expect_bijection(std::uint64_t size, std::uint64_t key) {
  const IndexPermutation permutation(size, key);
  std::vector<bool> hit(size, false);
  for (std::uint64_t i = 0; i < size; ++i) {
    const std::uint64_t value = permutation.apply(i);
    ASSERT_LT(value, size);
    ASSERT_FALSE(hit[value]) << value << " twice; size " << size << " key " << key;
    hit[value] = true;
    ASSERT_EQ(permutation.inverse(value), i) << "size " << size << " key " << key;
  }
}

TEST(PermutationTest, BijectionForEverySmallSize) {
  for (std::uint64_t size = 1; size <= 300; ++size) {
    for (std::uint64_t key = 0; key < 4; ++key) expect_bijection(size, key);
  }
}

TEST(PermutationTest, BijectionAroundPowersOfTwoAndAtRandomSizes) {
  Rng rng(7);
  for (int bits = 9; bits <= 16; ++bits) {
    const std::uint64_t power = std::uint64_t{1} << bits;
    for (const std::uint64_t size : {power - 1, power, power + 1, power + rng.below(power)}) {
      expect_bijection(size, rng.next_u64());
    }
  }
}

TEST(PermutationTest, HugeSizesInvert) {
  Rng rng(8);
  for (const std::uint64_t size :
       {std::uint64_t{1} << 62, (std::uint64_t{1} << 61) + 1, std::uint64_t{1'000'000'000'007}}) {
    const IndexPermutation permutation(size, rng.next_u64());
    for (int i = 0; i < 1000; ++i) {
      const std::uint64_t index = rng.below(size);
      ASSERT_LT(permutation.apply(index), size);
      ASSERT_EQ(permutation.inverse(permutation.apply(index)), index);
    }
  }
}

TEST(PermutationTest, KeysGiveDifferentOrders) {
  constexpr std::uint64_t kSize = 1000;
  const IndexPermutation a(kSize, 1);
  const IndexPermutation b(kSize, 2);
  int same = 0;
  for (std::uint64_t i = 0; i < kSize; ++i) same += a.apply(i) == b.apply(i);
  EXPECT_LT(same, 15);  // one is expected of unrelated permutations
}

// Neighbours end up unrelated: the mean distance of uniform draws is size / 3.
TEST(PermutationTest, NeighboursAreScattered) {
  constexpr std::uint64_t kSize = 10000;
  const IndexPermutation permutation(kSize, 3);
  double distance = 0;
  for (std::uint64_t i = 1; i < kSize; ++i) {
    distance += std::abs(static_cast<double>(permutation.apply(i)) -
                         static_cast<double>(permutation.apply(i - 1)));
  }
  EXPECT_NEAR(distance / (kSize - 1), kSize / 3.0, kSize * 0.02);
}

// Every first value comes about equally often over keys: chi-squared of 16 cells, 15 degrees.
TEST(PermutationTest, FirstValueIsUniformOverKeys) {
  constexpr int kCells = 16;
  constexpr int kKeys = 16000;
  std::vector<int> counts(kCells, 0);
  for (int key = 0; key < kKeys; ++key) {
    ++counts[IndexPermutation(kCells, static_cast<std::uint64_t>(key)).apply(0)];
  }
  double chi_squared = 0;
  for (const int count : counts) chi_squared += std::pow(count - kKeys / kCells, 2);
  EXPECT_LT(chi_squared / (kKeys / kCells), 45) << "p < 1e-4";
}

}  // namespace
}  // namespace swarmline
