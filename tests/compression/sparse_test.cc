// Selection of the largest: exact, with ties and everything that is not a plain number.

#include "compression/sparse.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "tests/compression/wire_values.h"

namespace swarmline {
namespace {

std::vector<std::uint16_t> by_sorting(const std::vector<float>& x, std::size_t kept) {
  std::vector<std::uint16_t> order(x.size());
  std::iota(order.begin(), order.end(), std::uint16_t{0});
  const auto magnitude = [&](std::uint16_t i) {
    return std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFFU;
  };
  std::ranges::sort(order, [&](std::uint16_t a, std::uint16_t b) {
    return std::pair(magnitude(b), a) < std::pair(magnitude(a), b);
  });
  order.resize(kept);
  std::ranges::sort(order);
  return order;
}

std::vector<std::uint16_t> select(const std::vector<float>& x, std::size_t kept, bool* non_finite) {
  std::vector<std::uint16_t> positions(kept);
  std::vector<float> values(kept);
  *non_finite = select_largest(x.data(), x.size(), kept, testing::writable(positions).data(),
                               testing::writable(values).data());
  for (std::size_t k = 0; k < kept; ++k)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(values[k]),
              std::bit_cast<std::uint32_t>(x[positions[k]]));
  return positions;
}

TEST(SelectLargest, IsWhatSortingGives) {
  bool non_finite = false;
  for (const std::size_t n : {1UL, 2UL, 7UL, 100UL, 4097UL, 65536UL}) {
    const std::vector<float> x = testing::samples<float>(n, n);
    for (const std::size_t kept : {std::size_t{1}, n / 100 + 1, n / 2 + 1, n})
      if (kept <= n) {
        EXPECT_EQ(select(x, kept, &non_finite), by_sorting(x, kept)) << n << " " << kept;
        EXPECT_FALSE(non_finite);
      }
  }
}

TEST(SelectLargest, OfEqualsTheLowerIndex) {
  Rng rng(5);
  std::vector<float> x(5000);
  for (float& value : x) value = static_cast<float>(static_cast<int>(rng.next_u32() % 7) - 3);
  bool non_finite = false;
  for (const std::size_t kept : {1UL, 10UL, 700UL, 2500UL, 4999UL, 5000UL})
    EXPECT_EQ(select(x, kept, &non_finite), by_sorting(x, kept)) << kept;
}

TEST(SelectLargest, WhatIsNotFiniteComesFirstAndIsSaid) {
  std::vector<float> x = testing::samples<float>(1000, 2);
  x[500] = std::numeric_limits<float>::quiet_NaN();
  x[900] = -std::numeric_limits<float>::infinity();
  bool non_finite = false;
  EXPECT_EQ(select(x, 1, &non_finite), (std::vector<std::uint16_t>{500}));
  EXPECT_TRUE(non_finite);
  EXPECT_EQ(select(x, 2, &non_finite), (std::vector<std::uint16_t>{500, 900}));
  EXPECT_TRUE(non_finite);
}

TEST(ScatterSparse, RefusesPositionsThatDoNotAscend) {
  const std::vector<float> values = {1, 2, 3};
  std::vector<float> out(10);
  const auto scatter = [&](const std::vector<std::uint16_t>& positions) {
    return scatter_sparse(testing::view(positions).data(), testing::view(values).data(), 3, 10,
                          DType::kF32, testing::writable(out).data());
  };
  ASSERT_EQ(scatter({0, 5, 9}), false);
  EXPECT_EQ(out, (std::vector<float>{1, 0, 0, 0, 0, 2, 0, 0, 0, 3}));
  EXPECT_FALSE(scatter({0, 0, 9}).has_value());
  EXPECT_FALSE(scatter({5, 4, 9}).has_value());
  EXPECT_FALSE(scatter({0, 5, 10}).has_value());
  EXPECT_FALSE(scatter({0, 5, 65535}).has_value());
}

}  // namespace
}  // namespace swarmline
