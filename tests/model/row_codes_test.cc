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

// Every number a code of the format stands for.
double largest_of(RowFormat format) {
  return format == RowFormat::kFp8 ? 448 : 127;
}
double spacing_at(RowFormat format, double y) {
  if (format == RowFormat::kInt8) return 1;
  const int exponent = std::max(-6, static_cast<int>(std::floor(std::log2(std::abs(y) + 1e-300))));
  return std::exp2(exponent - 3);
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
  const bool fp8 = GetParam() == RowFormat::kFp8;
  const auto top = static_cast<float>(largest_of(GetParam()));
  const std::vector<float> x = fp8 ? std::vector<float>{top, 17, 19, -17, 0x1p-10F, 0x3p-10F}
                                   : std::vector<float>{top, 0.5F, 1.5F, -2.5F, 3.5F, -0.5F};
  const std::vector<float> expected = fp8 ? std::vector<float>{top, 16, 20, -16, 0, 0x2p-9F}
                                          : std::vector<float>{top, 0, 2, -2, 4, 0};
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

INSTANTIATE_TEST_SUITE_P(Formats, RowCodes, ::testing::Values(RowFormat::kFp8, RowFormat::kInt8),
                         [](const auto& info) {
                           return info.param == RowFormat::kFp8 ? "fp8" : "int8";
                         });

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
  LtProblem problem{.operands = LtType::kFp8, .result = LtType::kF32, .row_scales = true};
  EXPECT_EQ(bias_type(problem), LtType::kBF16);
  problem.result = LtType::kBF16;
  EXPECT_EQ(bias_type(problem), LtType::kBF16);
  problem = {.operands = LtType::kF32, .result = LtType::kF32};
  EXPECT_EQ(bias_type(problem), LtType::kF32);
}

}  // namespace
}  // namespace swarmline
