// Rows of codes against the format written out in doubles.
#include "engine/model/row_codes.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/model/cublaslt.h"
#include "kernels/format/philox.h"

namespace swarmline {
namespace {

struct Rows {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
};

Rows quantized(RowFormat format, const std::vector<float>& x, std::size_t width) {
  Rows rows{std::vector<std::uint8_t>(x.size(), 0xAA), std::vector<float>(x.size() / width)};
  quantize_rows(format, x.data(), rows.scales.size(), width, rows.codes.data(), rows.scales.data());
  return rows;
}

std::vector<float> normal_rows(std::size_t rows, std::size_t width) {
  Rng rng(4);
  std::vector<float> x(rows * width);
  for (std::size_t i = 0; i < x.size(); ++i) {
    // Rows of very different size.
    x[i] = static_cast<float>(rng.normal() * std::exp2(static_cast<int>(i / width) * 9 - 40));
  }
  return x;
}

double largest_of(RowFormat format) {
  if (format == RowFormat::kInt8) return 127;
  return format == RowFormat::kE4M3 ? 448 : 57344;
}
double spacing_at(RowFormat format, double y) {
  if (format == RowFormat::kInt8) return 1;
  const bool e4m3 = format == RowFormat::kE4M3;
  const int exponent = static_cast<int>(std::floor(std::log2(std::abs(y) + 1e-300)));
  return std::exp2(std::max(e4m3 ? -6 : -14, exponent) - (e4m3 ? 3 : 2));
}

class RowCodes : public ::testing::TestWithParam<RowFormat> {};

TEST_P(RowCodes, AreTheNearestCodesOfTheScaledRow) {
  const RowFormat format = GetParam();
  for (const std::size_t width : {1U, 7U, 64U, 1000U}) {
    const std::vector<float> x = normal_rows(9, width);
    const Rows rows = quantized(format, x, width);
    for (std::size_t r = 0; r < rows.scales.size(); ++r) {
      float absmax = 0;
      for (std::size_t i = 0; i < width; ++i) absmax = std::max(absmax, std::abs(x[r * width + i]));
      ASSERT_EQ(rows.scales[r], absmax / static_cast<float>(largest_of(format)));
      const float inverse = 1.0F / rows.scales[r];
      for (std::size_t i = 0; i < width; ++i) {
        const double y = x[r * width + i] * inverse;
        const double number = code_number(format, rows.codes[r * width + i]);
        ASSERT_LE(std::abs(number), largest_of(format));
        // The largest may be passed by rounding of the inverse.
        if (std::abs(y) >= largest_of(format)) {
          EXPECT_EQ(std::abs(number), largest_of(format));
        } else {
          EXPECT_LE(std::abs(number - y), spacing_at(format, y) / 2) << y;
        }
      }
    }
  }
}

TEST_P(RowCodes, TiesGoToTheEvenCode) {
  // With absmax at the format's top, scale and inverse are 1.
  const auto top = static_cast<float>(largest_of(GetParam()));
  std::vector<float> x = {top, 0.5F, 1.5F, -2.5F, 3.5F, -0.5F};
  std::vector<float> expected = {top, 0, 2, -2, 4, 0};
  if (GetParam() == RowFormat::kE4M3) {
    x = {top, 17, 19, -17, 0x1p-10F, 0x3p-10F};
    expected = {top, 16, 20, -16, 0, 0x2p-9F};
  } else if (GetParam() == RowFormat::kE5M2) {
    x = {top, 9, 11, -9, 0x1p-17F, 0x3p-17F};
    expected = {top, 8, 12, -8, 0, 0x2p-16F};
  }
  const Rows rows = quantized(GetParam(), x, x.size());
  EXPECT_EQ(rows.scales[0], 1);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(code_number(GetParam(), rows.codes[i]), expected[i]) << x[i];
  }
}

TEST_P(RowCodes, RowsThatAreNotFiniteZeroOrTiny) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {1, NAN, 0, -inf, 0, 0, 0x1p-110F, 0, 2, 1};
  const Rows rows = quantized(GetParam(), x, 2);
  EXPECT_TRUE(std::isnan(rows.scales[0]));
  EXPECT_TRUE(std::isnan(rows.scales[1]));
  EXPECT_EQ(rows.scales[2], 0);
  EXPECT_EQ(rows.scales[3], 0);
  EXPECT_GT(rows.scales[4], 0);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(rows.codes[i], 0) << i;
}

TEST_P(RowCodes, TheLargestFloatsStayFinite) {
  const float most = std::numeric_limits<float>::max();
  const Rows rows = quantized(GetParam(), {most, -most, most / 3}, 3);
  for (const std::uint8_t code : rows.codes) {
    EXPECT_TRUE(std::isfinite(code_number(GetParam(), code) * rows.scales[0]));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, RowCodes,
                         ::testing::Values(RowFormat::kE4M3, RowFormat::kE5M2, RowFormat::kInt8),
                         [](const auto& info) {
                           if (info.param == RowFormat::kInt8) return "int8";
                           return info.param == RowFormat::kE4M3 ? "e4m3" : "e5m2";
                         });

// A row of gradients spans more than e4m3's nine binades of full precision.
TEST(RowCodesOfGradients, KeepWhatE4m3WouldLose) {
  const std::vector<float> x = {1, 0x1p-20F};
  EXPECT_EQ(code_number(RowFormat::kE4M3, quantized(RowFormat::kE4M3, x, 2).codes[1]), 0);
  const Rows rows = quantized(RowFormat::kE5M2, x, 2);
  EXPECT_NEAR(code_number(RowFormat::kE5M2, rows.codes[1]) * rows.scales[0], 0x1p-20, 0x1p-23);
}

TEST(Products, AreOfTypesThatCublasLtTakes) {
  EXPECT_TRUE(have_product(RowFormat::kE4M3, RowFormat::kE4M3));
  EXPECT_TRUE(have_product(RowFormat::kE5M2, RowFormat::kE4M3));
  EXPECT_TRUE(have_product(RowFormat::kE4M3, RowFormat::kE5M2));
  EXPECT_FALSE(have_product(RowFormat::kE5M2, RowFormat::kE5M2));
  EXPECT_TRUE(have_product(RowFormat::kInt8, RowFormat::kInt8));
  EXPECT_FALSE(have_product(RowFormat::kInt8, RowFormat::kE4M3));
  EXPECT_FALSE(have_product(RowFormat::kE5M2, RowFormat::kInt8));
}

// The device draws dropout masks with the kernels' cipher, the CPU with the engine's.
TEST(DropoutOfTheDevice, HasTheSameCipher) {
  Rng rng(6);
  for (int i = 0; i < 1000; ++i) {
    const PhiloxCounter counter = {rng.next_u32(), rng.next_u32(), rng.next_u32(), rng.next_u32()};
    const PhiloxKey key = {rng.next_u32(), rng.next_u32()};
    const auto expected = philox4x32(counter, key);
    const kernels::PhiloxWords words =
        kernels::philox({{counter[0], counter[1], counter[2], counter[3]}}, key[0], key[1]);
    for (std::size_t w = 0; w < 4; ++w) ASSERT_EQ(words.word[w], expected[w]);
  }
}

// With fp8 operands cuBLASLt takes no fp32 bias, whatever the result is.
TEST(Products, ABiasIsOfTheTypeThatTheProductTakes) {
  LtProblem problem{
      .left = LtType::kE4M3, .right = LtType::kE4M3, .result = LtType::kF32, .row_scales = true};
  EXPECT_EQ(bias_type(problem), LtType::kBF16);
  problem.left = LtType::kE5M2;
  EXPECT_EQ(bias_type(problem), LtType::kBF16);
  problem.result = LtType::kBF16;
  EXPECT_EQ(bias_type(problem), LtType::kBF16);
  problem = {.left = LtType::kF32, .right = LtType::kF32, .result = LtType::kF32};
  EXPECT_EQ(bias_type(problem), LtType::kF32);
}

}  // namespace
}  // namespace swarmline
