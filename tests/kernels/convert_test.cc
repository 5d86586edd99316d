// Conversions against references that share no code with the kernels.

#include <cfloat>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/cpu/table.h"
#include "tests/kernels/samples.h"

namespace swarmline::kernels {
namespace {

using testing::first_difference;
using testing::Guarded;
using testing::kSizes;
using testing::samples;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Convert : public ::testing::TestWithParam<const KernelTable*> {};

std::uint16_t compiler_half(float value) {
  return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
}

// Nearest bfloat16 by comparing distances in double; ties to the even code.
std::uint16_t nearest_bfloat(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  const auto below = static_cast<std::uint16_t>(bits >> 16);
  const auto above = static_cast<std::uint16_t>(below + 1);
  const auto widened = [](std::uint16_t code) {
    // Infinity stands one step above the largest finite number.
    if ((code & 0x7FFFU) == 0x7F80U) return std::copysign(0x1p128, (code & 0x8000U) ? -1.0 : 1.0);
    return double{std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16)};
  };
  if (std::isinf(value)) return below;
  const double down = std::abs(double{value} - widened(below));
  const double up = std::abs(widened(above) - double{value});
  if (down == up) return below % 2 == 0 ? below : above;
  return down < up ? below : above;
}

// All edges of rounding: every half and every midpoint between neighbours, one float either side.
std::vector<float> rounding_edges() {
  std::vector<float> edges;
  for (std::uint32_t half = 0; half < 0x7C00; ++half) {
    const auto a = float{std::bit_cast<_Float16>(static_cast<std::uint16_t>(half))};
    const auto b = half + 1 == 0x7C00
                       ? 65536.0F
                       : float{std::bit_cast<_Float16>(static_cast<std::uint16_t>(half + 1))};
    const float middle = (a + b) / 2;
    for (const float x :
         {a, middle, std::nextafter(middle, 0.0F), std::nextafter(middle, kInfinity)}) {
      edges.push_back(x);
      edges.push_back(-x);
    }
  }
  // A sweep over all bit patterns, NaNs and infinities among them.
  for (std::uint64_t bits = 0; bits < (1ULL << 32); bits += 8191) {
    edges.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  for (const float x : {0.0F, -0.0F, FLT_MAX, -FLT_MAX, FLT_MIN, FLT_TRUE_MIN, kInfinity,
                        -kInfinity, 65504.0F, 65519.996F, 65520.0F, 65536.0F}) {
    edges.push_back(x);
  }
  for (const std::uint32_t nan :
       {0x7FC00000U, 0xFFC00000U, 0x7F800001U, 0x7FBFFFFFU, 0x7FFFFFFFU}) {
    edges.push_back(std::bit_cast<float>(nan));
  }
  return edges;
}

TEST_P(Convert, HalfRoundsToNearestEven) {
  const std::vector<float> edges = rounding_edges();
  std::vector<std::uint16_t> halves(edges.size());
  EXPECT_TRUE(GetParam()->fp32_to_fp16(edges.data(), halves.data(), edges.size()));
  for (std::size_t i = 0; i < edges.size(); ++i) {
    ASSERT_EQ(halves[i], compiler_half(edges[i])) << std::bit_cast<std::uint32_t>(edges[i]);
  }
}

TEST_P(Convert, BfloatRoundsToNearestEven) {
  std::vector<float> edges = rounding_edges();
  for (std::uint32_t code = 0; code < 0x7F80; ++code) {
    for (const std::uint32_t low : {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      edges.push_back(std::bit_cast<float>(code << 16 | low));
    }
  }
  std::vector<std::uint16_t> codes(edges.size());
  EXPECT_TRUE(GetParam()->fp32_to_bf16(edges.data(), codes.data(), edges.size()));
  for (std::size_t i = 0; i < edges.size(); ++i) {
    ASSERT_EQ(codes[i], nearest_bfloat(edges[i])) << std::bit_cast<std::uint32_t>(edges[i]);
  }
}

TEST_P(Convert, EveryHalfAndBfloatWidensExactly) {
  std::vector<std::uint16_t> codes(65536);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint16_t>(i);
  std::vector<float> from_half(codes.size()), from_bfloat(codes.size());
  EXPECT_TRUE(GetParam()->fp16_to_fp32(codes.data(), from_half.data(), codes.size()));
  EXPECT_TRUE(GetParam()->bf16_to_fp32(codes.data(), from_bfloat.data(), codes.size()));
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const auto half = float{std::bit_cast<_Float16>(codes[i])};
    const auto bfloat = std::bit_cast<float>(static_cast<std::uint32_t>(codes[i]) << 16);
    if (std::isnan(half)) {
      ASSERT_TRUE(std::isnan(from_half[i])) << i;
      ASSERT_EQ(std::signbit(from_half[i]), (i & 0x8000) != 0) << i;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(from_half[i]), std::bit_cast<std::uint32_t>(half))
          << i;
    }
    if (std::isnan(bfloat)) {
      ASSERT_TRUE(std::isnan(from_bfloat[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(from_bfloat[i]), std::bit_cast<std::uint32_t>(bfloat));
    }
  }
}

TEST_P(Convert, EverySizeAndAlignment) {
  const KernelTable& table = *GetParam();
  for (const std::size_t n : kSizes) {
    for (const std::size_t misaligned : {0, 1, 6}) {
      const std::vector<float> x = samples<float>(n, 11);
      const std::vector<double> wide = samples<double>(n, 12);
      Guarded<float> in(x, misaligned);
      Guarded<double> wide_in(wide, misaligned);
      const auto check = [&]<typename T>(Guarded<T>& out, bool non_finite, auto expected_of) {
        EXPECT_FALSE(non_finite);
        EXPECT_TRUE(out.intact());
        const std::vector<T> values = out.values();
        for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(values[i], expected_of(i)) << n << ' ' << i;
      };
      Guarded<float> same(n, misaligned), narrow(n, misaligned), back(n, misaligned);
      Guarded<double> wider(n, misaligned), wide_same(n, misaligned);
      Guarded<std::uint16_t> half(n, misaligned), bfloat(n, misaligned);
      check(same, table.f32.copy_values(in.data(), same.data(), n), [&](auto i) { return x[i]; });
      check(wide_same, table.f64.copy_values(wide_in.data(), wide_same.data(), n),
            [&](auto i) { return wide[i]; });
      check(narrow, table.fp64_to_fp32(wide_in.data(), narrow.data(), n),
            [&](auto i) { return static_cast<float>(wide[i]); });
      check(wider, table.fp32_to_fp64(in.data(), wider.data(), n),
            [&](auto i) { return double{x[i]}; });
      check(half, table.fp32_to_fp16(in.data(), half.data(), n),
            [&](auto i) { return compiler_half(x[i]); });
      check(back, table.fp16_to_fp32(half.data(), back.data(), n),
            [&](auto i) { return float{static_cast<_Float16>(x[i])}; });
      check(bfloat, table.fp32_to_bf16(in.data(), bfloat.data(), n),
            [&](auto i) { return nearest_bfloat(x[i]); });
    }
  }
}

TEST_P(Convert, NonFiniteIsReportedWhereverItStands) {
  const KernelTable& table = *GetParam();
  for (const std::size_t n : {1, 31, 64, 257}) {
    for (std::size_t at = 0; at < n; ++at) {
      std::vector<float> x(n, 1.0F), out(n);
      std::vector<double> wide(n, 1.0), wide_out(n);
      std::vector<std::uint16_t> codes(n);
      x[at] = at % 2 == 0 ? kNan : -kInfinity;
      wide[at] = 1e39;  // finite, until it is narrowed
      EXPECT_TRUE(table.f32.copy_values(x.data(), out.data(), n));
      EXPECT_TRUE(table.f32.any_non_finite(x.data(), n));
      EXPECT_FALSE(table.f64.any_non_finite(wide.data(), n));
      EXPECT_FALSE(table.f64.copy_values(wide.data(), wide_out.data(), n));
      EXPECT_TRUE(table.fp64_to_fp32(wide.data(), out.data(), n));
      EXPECT_TRUE(std::isinf(out[at]));
      EXPECT_TRUE(table.fp32_to_fp64(x.data(), wide_out.data(), n));
      EXPECT_TRUE(table.f64.copy_values(wide_out.data(), wide.data(), n));
      EXPECT_TRUE(table.f64.any_non_finite(wide_out.data(), n));
      EXPECT_TRUE(table.fp32_to_fp16(x.data(), codes.data(), n));
      EXPECT_TRUE(table.fp16_to_fp32(codes.data(), out.data(), n));
      EXPECT_EQ(std::isnan(out[at]), std::isnan(x[at]));
      EXPECT_TRUE(table.fp32_to_bf16(x.data(), codes.data(), n));
      EXPECT_TRUE(table.bf16_to_fp32(codes.data(), out.data(), n));
      EXPECT_EQ(std::isnan(out[at]), std::isnan(x[at]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllSets, Convert,
                         ::testing::ValuesIn(available_tables().begin(), available_tables().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace swarmline::kernels
