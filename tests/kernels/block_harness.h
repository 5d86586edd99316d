// Runs h8, fp8, int4 and h4 on every instruction set of this machine against ReferenceBlocks, bit
// for bit. Failures name the instruction set, the format, the size and the first difference.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/kernels.h"
#include "kernels/quantize.h"
#include "tests/kernels/quant_paths.h"
#include "tests/kernels/reference_blocks.h"
#include "tests/kernels/samples.h"

namespace swarmline::testing {

using kernels::FloatKind;
using kernels::QuantFormat;
using kernels::QuantSpec;
using kernels::ScaleKind;
using kernels::StochasticKey;

inline constexpr std::array kFloatKinds = {FloatKind::kF32, FloatKind::kF16, FloatKind::kBf16};
inline constexpr std::array kScaleKinds = {ScaleKind::kF32, ScaleKind::kBf16};
// Offsets in bytes of what is four, two or one byte wide: aligned, and as askew as can be.
inline constexpr std::array<std::size_t, 2> kMisalignments = {0, 4};

inline std::size_t float_bytes(FloatKind kind) {
  return kind == FloatKind::kF32 ? 4 : 2;
}

// `x` as the bytes of an array of `kind`, rounded to it.
inline std::vector<std::uint8_t> narrowed(FloatKind kind, const std::vector<float>& x) {
  std::vector<std::uint8_t> out(x.size() * float_bytes(kind));
  auto* halves = reinterpret_cast<std::uint16_t*>(out.data());
  if (kind == FloatKind::kF32 && !x.empty()) std::memcpy(out.data(), x.data(), out.size());
  if (kind == FloatKind::kF16) kernels::fp32_to_fp16(x.data(), halves, x.size());
  if (kind == FloatKind::kBf16) kernels::fp32_to_bf16(x.data(), halves, x.size());
  return out;
}
inline std::vector<float> widened(FloatKind kind, const std::vector<std::uint8_t>& bytes) {
  std::vector<float> out(bytes.size() / float_bytes(kind));
  const auto* halves = reinterpret_cast<const std::uint16_t*>(bytes.data());
  if (kind == FloatKind::kF32 && !out.empty()) {
    std::memcpy(out.data(), bytes.data(), bytes.size());
  }
  if (kind == FloatKind::kF16) kernels::fp16_to_fp32(halves, out.data(), out.size());
  if (kind == FloatKind::kBf16) kernels::bf16_to_fp32(halves, out.data(), out.size());
  return out;
}
inline std::vector<std::uint8_t> scale_array(ScaleKind kind, const std::vector<float>& stored) {
  std::vector<std::uint8_t> out;
  for (float scale : stored) {
    auto bits = std::bit_cast<std::uint32_t>(scale);
    if (std::isnan(scale)) bits = 0x7FC00000;
    for (unsigned byte = kind == ScaleKind::kF32 ? 0 : 2; byte < 4; ++byte) {
      out.push_back(static_cast<std::uint8_t>(bits >> (8 * byte)));
    }
  }
  return out;
}
inline std::vector<float> scales_of(ScaleKind kind, const std::vector<std::uint8_t>& array) {
  return widened(kind == ScaleKind::kF32 ? FloatKind::kF32 : FloatKind::kBf16, array);
}

inline std::string describe(const QuantSpec& spec, std::size_t n) {
  static const std::array<const char*, 8> kNames = {"lin8", "dyn8", "dyn8u", "h8",
                                                    "e4m3", "e5m2", "int4",  "h4"};
  return std::string(kNames.at(static_cast<std::size_t>(spec.format))) + " scales " +
         std::to_string(static_cast<int>(spec.scales)) + " n " + std::to_string(n);
}

// Quantizes on the current path into guarded buffers.
struct Quantized {
  std::vector<std::uint8_t> scales;
  std::vector<std::uint8_t> codes;
  bool bad = false;
};
inline Quantized run_quantize(const QuantSpec& spec, FloatKind source,
                              const std::vector<std::uint8_t>& values, const StochasticKey* key,
                              std::size_t misaligned) {
  const std::size_t n = values.size() / float_bytes(source);
  Guarded<std::uint8_t> in(values, misaligned);
  Guarded<std::uint8_t> scales(quant_blocks(spec, n) * scale_bytes(spec.scales), misaligned);
  Guarded<std::uint8_t> codes(code_bytes(spec, n), misaligned == 0 ? 0 : 1);
  Quantized out;
  out.bad = kernels::quantize(spec, source, in.data(), n, key, scales.data(), codes.data());
  EXPECT_TRUE(in.intact() && scales.intact() && codes.intact()) << describe(spec, n);
  out.scales = scales.values();
  out.codes = codes.values();
  return out;
}

template <typename Reference = ReferenceBlocks>
void expect_quantizes(const QuantSpec& spec, FloatKind source, const std::vector<float>& x,
                      const StochasticKey* key, std::size_t misaligned) {
  const std::vector<std::uint8_t> values = narrowed(source, x);
  const ReferenceCodes expected = Reference(spec).quantize(widened(source, values), key);
  const std::vector<std::uint8_t> scales = scale_array(spec.scales, expected.stored);
  for_each_quant_path([&](const std::string& path) {
    SCOPED_TRACE(path + " " + describe(spec, x.size()) + " source " +
                 std::to_string(static_cast<int>(source)));
    const Quantized got = run_quantize(spec, source, values, key, misaligned);
    EXPECT_EQ(first_difference(scales, got.scales), scales.size()) << "scales";
    EXPECT_EQ(first_difference(expected.codes, got.codes), expected.codes.size()) << "codes";
    EXPECT_EQ(expected.bad, got.bad);
  });
}

// Any bytes as codes and any floats as scales: what a peer may send.
template <typename Reference = ReferenceBlocks>
void expect_dequantizes(const QuantSpec& spec, FloatKind target, const std::vector<float>& stored,
                        const std::vector<std::uint8_t>& codes, std::size_t n,
                        std::size_t misaligned) {
  const std::vector<std::uint8_t> scales = scale_array(spec.scales, stored);
  const ReferenceValues reference =
      Reference(spec).dequantize(scales_of(spec.scales, scales), codes, n);
  const std::vector<std::uint8_t> expected = narrowed(target, reference.values);
  bool bad = reference.bad;
  for (float value : widened(target, expected)) bad |= !std::isfinite(value);
  for_each_quant_path([&](const std::string& path) {
    SCOPED_TRACE(path + " " + describe(spec, n) + " target " +
                 std::to_string(static_cast<int>(target)));
    Guarded<std::uint8_t> scales_in(scales, misaligned);
    Guarded<std::uint8_t> codes_in(codes, misaligned == 0 ? 0 : 1);
    Guarded<std::uint8_t> out(n * float_bytes(target), misaligned);
    EXPECT_EQ(kernels::dequantize(spec, scales_in.data(), codes_in.data(), n, target, out.data()),
              bad);
    EXPECT_TRUE(out.intact());
    EXPECT_EQ(first_difference(expected, out.values()), expected.size());
  });
}

template <typename Reference = ReferenceBlocks>
void expect_axpy(const QuantSpec& spec, float a, const std::vector<float>& stored,
                 const std::vector<std::uint8_t>& codes, const std::vector<float>& y,
                 std::size_t misaligned) {
  const std::vector<std::uint8_t> scales = scale_array(spec.scales, stored);
  const ReferenceValues reference =
      Reference(spec).dequantize(scales_of(spec.scales, scales), codes, y.size());
  std::vector<float> expected = y;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const float product = a * reference.values[i];
    expected[i] += product;
  }
  for_each_quant_path([&](const std::string& path) {
    SCOPED_TRACE(path + " axpy " + describe(spec, y.size()));
    Guarded<std::uint8_t> scales_in(scales, misaligned);
    Guarded<float> out(y, misaligned);
    EXPECT_EQ(
        kernels::dequantize_axpy(spec, a, scales_in.data(), codes.data(), y.size(), out.data()),
        reference.bad);
    EXPECT_TRUE(out.intact());
    const std::vector<float> got = out.values();
    for (std::size_t i = 0; i < y.size(); ++i) {
      // Which NaN a sum with a NaN gives is left open.
      if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(expected[i]), std::bit_cast<std::uint32_t>(got[i]))
          << i;
    }
  });
}

// Data that finds what a format gets wrong: many magnitudes, subnormals, zeros, the largest floats,
// blocks of nothing, of tiny and of huge elements, a lone outlier.
inline std::vector<float> block_samples(std::size_t n, std::uint32_t block, std::uint64_t seed) {
  std::vector<float> x = samples<float>(n, seed);
  for (std::size_t begin = 0, b = 0; begin < n; begin += block, ++b) {
    const std::size_t end = std::min(n, begin + block);
    for (std::size_t i = begin; i < end; ++i) {
      switch (b % 9) {
        case 1:
          x[i] = std::ldexp(x[i], -95);  // around the smallest absmax that has a scale
          break;
        case 2:
          x[i] = i % 2 == 0 ? 3e38F : -std::ldexp(x[i], 100);
          break;
        case 3:
          x[i] = std::ldexp(x[i], -140);
          break;
        case 4:
          x[i] = i % 3 == 0 ? std::numeric_limits<float>::max() : x[i];
          break;
        case 5:
          x[i] = i == begin ? 1e6F : x[i] * 1e-3F;
          break;
        case 6:
          x[i] = static_cast<float>(static_cast<int>(i % 255) - 127) * 0.5F;  // ties
          break;
        case 7:
          x[i] = 0;
          break;
        default:
          break;
      }
    }
  }
  return x;
}

}  // namespace swarmline::testing
