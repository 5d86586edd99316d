// h8, fp8, int4 and h4 against plain references: all sizes, types, scales, and whatever is not
// finite.
#include <gtest/gtest.h>

#include "tests/kernels/block_harness.h"

namespace swarmline::testing {
namespace {

constexpr std::array<std::size_t, 11> kTailSizes = {0, 1, 31, 32, 33, 63, 64, 65, 127, 4095, 4097};

QuantSpec spec_of(QuantFormat format, ScaleKind scales = ScaleKind::kF32) {
  std::uint32_t block = kernels::is_valid({format, 32, scales}) ? 32 : 64;
  if (!kernels::is_valid({format, block, scales})) block = 128;
  return {format, block, scales};
}

class BlockFormat : public ::testing::TestWithParam<QuantFormat> {};

TEST_P(BlockFormat, QuantizesLikeTheReferenceAtEverySize) {
  for (ScaleKind scales : kScaleKinds) {
    const QuantSpec spec = spec_of(GetParam(), scales);
    for (FloatKind source : kFloatKinds) {
      for (std::size_t n : kTailSizes) {
        for (std::size_t misaligned : kMisalignments) {
          expect_quantizes(spec, source, block_samples(n, spec.block, n + 1), nullptr, misaligned);
        }
      }
    }
  }
}
TEST_P(BlockFormat, QuantizesAMillion) {
  const QuantSpec spec = spec_of(GetParam());
  expect_quantizes(spec, FloatKind::kF32, block_samples(1'000'003, spec.block, 5), nullptr, 0);
  expect_quantizes(spec, FloatKind::kBf16, block_samples(4096 * 9, spec.block, 6), nullptr, 0);
  expect_quantizes(spec, FloatKind::kF16, samples<float>(4096 * 9, 7), nullptr, 0);
}

std::vector<std::uint8_t> any_codes(const QuantSpec& spec, std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<std::uint8_t> codes(code_bytes(spec, n));
  for (auto& code : codes) code = static_cast<std::uint8_t>(rng.next_u32());
  return codes;
}
std::vector<float> usual_scales(const QuantSpec& spec, std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> scales(quant_blocks(spec, n));
  for (auto& s : scales) {
    s = std::ldexp(1 + unit_float(rng.next_u32()), static_cast<int>(rng.below(40)) - 25);
  }
  return scales;
}
// As from a peer that means harm, among usual ones.
std::vector<float> foreign_scales(const QuantSpec& spec, std::size_t n, std::uint64_t seed) {
  std::vector<float> scales = usual_scales(spec, n, seed);
  const float largest = std::numeric_limits<float>::max();
  const std::array odd = {0.0F,      -0.0F,       1e-42F,  largest,      largest / 57344,
                          2.6e36F,   NAN,         -1.0F,   2.7e36F,      INFINITY,
                          -INFINITY, largest / 7, 7.5e35F, largest / 448};
  for (std::size_t i = 0; i < scales.size(); i += 2) scales[i] = odd.at(i / 2 % odd.size());
  return scales;
}

TEST_P(BlockFormat, DequantizesLikeTheReferenceAtEverySize) {
  for (ScaleKind scales : kScaleKinds) {
    const QuantSpec spec = spec_of(GetParam(), scales);
    for (FloatKind target : kFloatKinds) {
      for (std::size_t n : kTailSizes) {
        for (std::size_t misaligned : kMisalignments) {
          const auto codes = any_codes(spec, n, n);
          expect_dequantizes(spec, target, usual_scales(spec, n, 2), codes, n, misaligned);
          expect_dequantizes(spec, target, foreign_scales(spec, n, 3), codes, n, misaligned);
        }
      }
    }
  }
}
TEST_P(BlockFormat, DequantizesAMillion) {
  const QuantSpec spec = spec_of(GetParam());
  constexpr std::size_t kN = 1'000'003;
  expect_dequantizes(spec, FloatKind::kF32, usual_scales(spec, kN, 2), any_codes(spec, kN, 4), kN,
                     0);
}

// Output that is large enough goes past the caches: the same bits, from the same calls in pieces.
TEST_P(BlockFormat, LargeTensorsGetTheBitsOfSmallOnes) {
  const QuantSpec spec = spec_of(GetParam());
  constexpr std::size_t kPiece = 1 << 19;
  constexpr std::size_t kN = kernels::kStreamingBytesMin + 4097;
  const std::vector<std::uint8_t> x = narrowed(FloatKind::kF32, samples<float>(kN, 3));
  for_each_quant_path([&](const std::string& path) {
    SCOPED_TRACE(path);
    Guarded<std::uint8_t> scales(4 * quant_blocks(spec, kN)), codes(code_bytes(spec, kN));
    Guarded<std::uint8_t> scales2(4 * quant_blocks(spec, kN)), codes2(code_bytes(spec, kN));
    quantize(spec, FloatKind::kF32, x.data(), kN, nullptr, scales.data(), codes.data());
    for (std::size_t i = 0; i < kN; i += kPiece) {
      quantize(spec, FloatKind::kF32, x.data() + 4 * i, std::min(kPiece, kN - i), nullptr,
               scales2.data() + 4 * quant_blocks(spec, i), codes2.data() + code_bytes(spec, i));
    }
    EXPECT_TRUE(codes.intact());
    EXPECT_TRUE(scales.values() == scales2.values());
    EXPECT_TRUE(codes.values() == codes2.values());
    for (FloatKind target : kFloatKinds) {
      const std::size_t width = float_bytes(target);
      Guarded<std::uint8_t> y(kN * width), y2(kN * width);
      dequantize(spec, scales.data(), codes.data(), kN, target, y.data());
      for (std::size_t i = 0; i < kN; i += kPiece) {
        dequantize(spec, scales.data() + 4 * quant_blocks(spec, i),
                   codes.data() + code_bytes(spec, i), std::min(kPiece, kN - i), target,
                   y2.data() + width * i);
      }
      EXPECT_TRUE(y.intact());
      EXPECT_TRUE(y.values() == y2.values());
    }
  });
}

TEST_P(BlockFormat, AddsLikeTheReference) {
  for (ScaleKind scales : kScaleKinds) {
    const QuantSpec spec = spec_of(GetParam(), scales);
    for (std::size_t n :
         {std::size_t{1}, std::size_t{63}, std::size_t{4097}, std::size_t{70'000}}) {
      const auto codes = any_codes(spec, n, n);
      expect_axpy(spec, 0.3F, usual_scales(spec, n, 2), codes, samples<float>(n, 3), 0);
      expect_axpy(spec, -1.0F, foreign_scales(spec, n, 2), codes, samples<float>(n, 3), 4);
    }
  }
}

TEST_P(BlockFormat, NotFiniteAnywhereInABlockSpoilsThatBlockOnly) {
  const QuantSpec spec = spec_of(GetParam());
  const std::array bad = {NAN, -NAN, std::bit_cast<float>(0x7F800001U), INFINITY, -INFINITY};
  const std::size_t n = spec.block * 3 + 5;
  for (std::size_t position = spec.block; position < n; ++position) {
    std::vector<float> x = samples<float>(n, position);
    x[position] = bad.at(position % bad.size());
    expect_quantizes(spec, FloatKind::kF32, x, nullptr, 0);
    if (position % 7 == 0) {
      expect_quantizes(spec, FloatKind::kF16, x, nullptr, 4);
      expect_quantizes(spec, FloatKind::kBf16, x, nullptr, 4);
    }
    const Quantized coded =
        run_quantize(spec, FloatKind::kF32, narrowed(FloatKind::kF32, x), nullptr, 0);
    std::vector<float> back(n);
    EXPECT_TRUE(coded.bad);
    EXPECT_TRUE(kernels::dequantize(spec, coded.scales.data(), coded.codes.data(), n,
                                    FloatKind::kF32, back.data()));
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(std::isnan(back[i]), i / spec.block == position / spec.block) << i;
    }
  }
}

TEST_P(BlockFormat, WhatWasFiniteStaysFinite) {
  const QuantSpec spec = spec_of(GetParam());
  Rng rng(9);
  std::vector<float> x(spec.block * 64);
  for (float& a : x) {
    a = rng.below(2) == 0 ? std::numeric_limits<float>::max()
                          : -std::numeric_limits<float>::max() * unit_float(rng.next_u32());
  }
  for (ScaleKind scales : kScaleKinds) {
    const QuantSpec with = spec_of(GetParam(), scales);
    const Quantized coded =
        run_quantize(with, FloatKind::kF32, narrowed(FloatKind::kF32, x), nullptr, 0);
    std::vector<float> back(x.size());
    EXPECT_FALSE(coded.bad);
    EXPECT_FALSE(kernels::dequantize(with, coded.scales.data(), coded.codes.data(), x.size(),
                                     FloatKind::kF32, back.data()));
  }
}

TEST_P(BlockFormat, AveragesAndFeedsBackLikeItsParts) {
  const QuantSpec spec = spec_of(GetParam());
  constexpr std::size_t kN = 9001;
  constexpr std::size_t kParts = 3;
  const ReferenceBlocks reference(spec);
  std::vector<Quantized> coded;
  std::vector<kernels::QuantPart> parts;
  std::vector<float> sum(kN);
  for (std::size_t p = 0; p < kParts; ++p) {
    std::vector<float> x = samples<float>(kN, p);
    if (p == 1) x[spec.block + 1] = NAN;
    coded.push_back(run_quantize(spec, FloatKind::kF32, narrowed(FloatKind::kF32, x), nullptr, 0));
    const auto part =
        reference.dequantize(scales_of(spec.scales, coded[p].scales), coded[p].codes, kN);
    for (std::size_t i = 0; i < kN; ++i) sum[i] = p == 0 ? part.values[i] : sum[i] + part.values[i];
  }
  for (const Quantized& c : coded) parts.push_back({c.scales.data(), c.codes.data()});
  for (float& s : sum) s *= 0.125F;
  const ReferenceCodes mean = reference.quantize(sum, nullptr);
  for_each_quant_path([&](const std::string& path) {
    SCOPED_TRACE(path);
    std::vector<std::uint8_t> scales(coded[0].scales.size()), codes(coded[0].codes.size());
    EXPECT_TRUE(kernels::mean_requantize(spec, parts.data(), kParts, 0.125F, kN, nullptr,
                                         scales.data(), codes.data()));
    EXPECT_EQ(first_difference(scale_array(spec.scales, mean.stored), scales), scales.size());
    EXPECT_EQ(first_difference(mean.codes, codes), codes.size());
  });

  const std::vector<float> x = block_samples(kN, spec.block, 21);
  std::vector<float> residual = samples<float>(kN, 22);
  std::vector<float> target(kN);
  for (std::size_t i = 0; i < kN; ++i) target[i] = x[i] + residual[i];
  const ReferenceCodes expected = reference.quantize(target, nullptr);
  const ReferenceValues decoded = reference.dequantize(expected.stored, expected.codes, kN);
  for_each_quant_path([&](const std::string& path) {
    SCOPED_TRACE(path);
    std::vector<float> rest = residual;
    std::vector<std::uint8_t> scales(coded[0].scales.size()), codes(coded[0].codes.size());
    EXPECT_FALSE(kernels::quantize_with_feedback(spec, x.data(), rest.data(), kN, nullptr,
                                                 scales.data(), codes.data()));
    EXPECT_EQ(first_difference(expected.codes, codes), codes.size());
    for (std::size_t i = 0; i < kN; ++i) ASSERT_EQ(rest[i], target[i] - decoded.values[i]) << i;
  });
}

INSTANTIATE_TEST_SUITE_P(All, BlockFormat,
                         ::testing::Values(QuantFormat::kH8, QuantFormat::kE4M3, QuantFormat::kE5M2,
                                           QuantFormat::kInt4, QuantFormat::kH4));

}  // namespace
}  // namespace swarmline::testing
