// lin8 and dyn8 against plain references, on every instruction set: all sizes, blocks, types and
// scales, whatever is not finite, and what bitsandbytes and hivemind make and read.
#include <gtest/gtest.h>

#include "tests/kernels/block_harness.h"
#include "tests/kernels/dyn8_fixture.h"
#include "tests/kernels/reference_quantizer.h"

namespace swarmline::testing {
namespace {

constexpr std::array<std::uint32_t, 7> kBlocks = {64, 128, 256, 512, 1024, 2048, 4096};
constexpr std::array<std::size_t, 12> kTailSizes = {0,  1,  31,   32,   33,   63,
                                                    64, 65, 4095, 4096, 4097, 9000};
constexpr float kLargest = std::numeric_limits<float>::max();

std::vector<std::uint8_t> all_codes(std::size_t n) {
  std::vector<std::uint8_t> codes(n);
  for (std::size_t i = 0; i < n; ++i) codes[i] = static_cast<std::uint8_t>(i * 37 + i / 256);
  return codes;
}
// Usual ones, and such as a peer that means harm would send.
std::vector<float> any_scales(const QuantSpec& spec, std::size_t n) {
  constexpr std::array kOdd = {0.0F,  -0.0F,   1e-42F,   kLargest, kLargest / 127, 2.6e36F,
                               -1.0F, 2.7e36F, INFINITY, NAN,      -INFINITY,      520.0F};
  std::vector<float> scales(quant_blocks(spec, n));
  for (std::size_t b = 0; b < scales.size(); ++b) {
    scales[b] = b % 2 == 0 ? kOdd.at(b / 2 % kOdd.size()) : 0.01F * static_cast<float>(b);
  }
  return scales;
}

class ByteFormat : public ::testing::TestWithParam<QuantFormat> {
 protected:
  using Reference = ReferenceQuantizer;
};

TEST_P(ByteFormat, QuantizesLikeTheReferenceAtEverySizeAndBlock) {
  for (std::uint32_t block : kBlocks) {
    for (ScaleKind scales : kScaleKinds) {
      const QuantSpec spec{GetParam(), block, scales};
      for (FloatKind source : kFloatKinds) {
        for (std::size_t n : kTailSizes) {
          const auto x = block_samples(n, block, n + block);
          expect_quantizes<Reference>(spec, source, x, nullptr, n % 3 == 0 ? 4 : 0);
        }
      }
    }
  }
}
TEST_P(ByteFormat, QuantizesAMillion) {
  for (std::uint32_t block : kBlocks) {
    const QuantSpec spec{GetParam(), block, ScaleKind::kF32};
    expect_quantizes<Reference>(spec, FloatKind::kF32, block_samples(1'000'003, block, 5), nullptr,
                                0);
  }
}

TEST_P(ByteFormat, DequantizesLikeTheReferenceAtEverySizeAndBlock) {
  for (std::uint32_t block : kBlocks) {
    for (ScaleKind scales : kScaleKinds) {
      const QuantSpec spec{GetParam(), block, scales};
      for (std::size_t n : kTailSizes) {
        for (FloatKind target : kFloatKinds) {
          expect_dequantizes<Reference>(spec, target, any_scales(spec, n), all_codes(n), n,
                                        n % 3 == 0 ? 4 : 0);
        }
        expect_axpy<Reference>(spec, -0.37F, any_scales(spec, n), all_codes(n),
                               samples<float>(n, 3), n % 3 == 0 ? 4 : 0);
      }
      // Every scale in turn.
      const std::size_t n = 40 * block + 7;
      expect_dequantizes<Reference>(spec, FloatKind::kF16, any_scales(spec, n), all_codes(n), n, 0);
    }
  }
}

// Above the size from which the stores go past the caches.
TEST_P(ByteFormat, StreamsTheSameBits) {
  constexpr std::size_t kN = kernels::kStreamingBytesMin + 4097;
  const QuantSpec spec{GetParam(), 256, ScaleKind::kF32};
  const std::vector<float> x = block_samples(kN, 256, 8);
  expect_quantizes<Reference>(spec, FloatKind::kF32, x, nullptr, 0);
  const auto stored = Reference(spec).quantize(x, nullptr).stored;
  for (FloatKind target : kFloatKinds) {
    expect_dequantizes<Reference>(spec, target, stored, all_codes(kN), kN, 0);
  }
}

TEST_P(ByteFormat, WhatIsNotFiniteMarksItsBlockWhereverItStands) {
  for (std::uint32_t block : {64U, 256U}) {
    for (ScaleKind scales : kScaleKinds) {
      for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
        const QuantSpec spec{GetParam(), block, scales};
        for (std::size_t at = 0; at < 2 * block + 9; ++at) {
          std::vector<float> x(2 * block + 9, 0.5F);
          x[at] = bad;
          expect_quantizes<Reference>(spec, FloatKind::kF32, x, nullptr, 0);
          if (at % 16 == 0) expect_quantizes<Reference>(spec, FloatKind::kF16, x, nullptr, 0);
          if (at % 16 == 1) expect_quantizes<Reference>(spec, FloatKind::kBf16, x, nullptr, 0);
        }
      }
    }
  }
}

TEST_P(ByteFormat, MeanOfPartsIsQuantizedAgain) {
  constexpr std::size_t kN = 9000;
  constexpr std::size_t kParts = 3;
  const QuantSpec spec{GetParam(), 256, ScaleKind::kBf16};
  std::vector<std::vector<std::uint8_t>> scales, codes;
  std::vector<float> sum;
  for (std::size_t p = 0; p < kParts; ++p) {
    const auto part = Reference(spec).quantize(samples<float>(kN, 20 + p), nullptr);
    const auto values = Reference(spec).dequantize(part.stored, part.codes, kN).values;
    if (p == 0) sum = values;
    for (std::size_t i = 0; p > 0 && i < kN; ++i) sum[i] += values[i];
    scales.push_back(scale_array(spec.scales, part.stored));
    codes.push_back(part.codes);
  }
  for (float& value : sum) value *= 1.0F / 3;
  const auto expected = Reference(spec).quantize(sum, nullptr);
  for_each_quant_path([&](const std::string& path) {
    SCOPED_TRACE(path);
    auto scales_out = scales, codes_out = codes;  // in place of the second part
    std::vector<kernels::QuantPart> parts;
    for (std::size_t p = 0; p < kParts; ++p) {
      parts.push_back({scales_out[p].data(), codes_out[p].data()});
    }
    EXPECT_FALSE(kernels::mean_requantize(spec, parts.data(), kParts, 1.0F / 3, kN, nullptr,
                                          scales_out[1].data(), codes_out[1].data()));
    EXPECT_EQ(scales_out[1], scale_array(spec.scales, expected.stored));
    EXPECT_EQ(first_difference(codes_out[1], expected.codes), kN);
  });
}

TEST_P(ByteFormat, FeedbackKeepsWhatTheCodesLeftOut) {
  constexpr std::size_t kN = 9000;
  const QuantSpec spec{GetParam(), 256, ScaleKind::kF32};
  std::vector<float> values = samples<float>(kN, 31);
  const std::vector<float> residual = samples<float>(kN, 32);
  values[600] = NAN;
  std::vector<float> target(kN), rest(kN);
  for (std::size_t i = 0; i < kN; ++i) target[i] = values[i] + residual[i];
  const auto expected = Reference(spec).quantize(target, nullptr);
  const auto decoded = Reference(spec).dequantize(expected.stored, expected.codes, kN).values;
  for (std::size_t i = 0; i < kN; ++i) {
    rest[i] = i / 256 == 600 / 256 ? 0.0F : target[i] - decoded[i];
  }
  for_each_quant_path([&](const std::string& path) {
    SCOPED_TRACE(path);
    std::vector<float> left = residual;
    std::vector<float> scales(expected.stored.size());
    std::vector<std::uint8_t> codes(kN);
    EXPECT_TRUE(kernels::quantize_with_feedback(spec, values.data(), left.data(), kN, nullptr,
                                                scales.data(), codes.data()));
    EXPECT_EQ(first_difference(codes, expected.codes), kN);
    EXPECT_EQ(first_difference(left, rest), kN);
  });
}

INSTANTIATE_TEST_SUITE_P(AllFormats, ByteFormat,
                         ::testing::Values(QuantFormat::kLin8, QuantFormat::kDyn8,
                                           QuantFormat::kDyn8Unsigned),
                         [](const auto& info) {
                           return describe({info.param, 64, ScaleKind::kF32}, 0)
                               .substr(0, info.param == QuantFormat::kDyn8Unsigned ? 5 : 4);
                         });

TEST(Lin8, StochasticRoundingIsTheReferencesInPiecesToo) {
  const QuantSpec spec{QuantFormat::kLin8, 128, ScaleKind::kBf16};
  const StochasticKey key{.seed = 0x123456789ABCDEF0, .stream = {7, 8, 0x80000009}};
  StochasticKey second = key;
  second.first_element = 4096;
  const std::vector<float> x = block_samples(9001, 128, 77);
  expect_quantizes<ReferenceQuantizer>(spec, FloatKind::kF32, x, &key, 0);
  expect_quantizes<ReferenceQuantizer>(spec, FloatKind::kBf16, x, &key, 4);
  const auto whole = ReferenceQuantizer(spec).quantize(x, &key).codes;
  const std::vector<float> rest(x.begin() + 4096, x.end());
  const auto piece = ReferenceQuantizer(spec).quantize(rest, &second).codes;
  EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + 4096));
  expect_quantizes<ReferenceQuantizer>(spec, FloatKind::kF32, rest, &second, 0);
}

// Draws of N(0, 1) by sums of twelve uniform ones would have no tails: Box-Muller.
std::vector<float> normal(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out(n);
  for (float& value : out) {
    const double u = (rng.next_u32() + 1.0) / 4294967297.0;
    const double v = rng.next_u32() / 4294967296.0;
    value = static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * 3.141592653589793 * v));
  }
  return out;
}

TEST(Dyn8, CodesAreTheNearestValuesOfTheMapButForOneInAHundredThousand) {
  constexpr std::size_t kN = 1 << 22;
  const std::vector<float> x = normal(kN, 4);
  const auto& book = dyn8_fixture().signed_book;
  const auto out = run_quantize({QuantFormat::kDyn8, 4096, ScaleKind::kF32}, FloatKind::kF32,
                                narrowed(FloatKind::kF32, x), nullptr, 0);
  const std::vector<float> absmax = scales_of(ScaleKind::kF32, out.scales);
  std::array<float, 255> middle;
  for (std::size_t k = 0; k < middle.size(); ++k) middle[k] = (book[k] + book[k + 1]) * 0.5F;
  std::size_t differing = 0;
  for (std::size_t i = 0; i < kN; ++i) {
    const float y = x[i] * (1.0F / absmax[i / 4096]);
    const auto nearest = std::upper_bound(middle.begin(), middle.end(), y) - middle.begin();
    differing += out.codes[i] != nearest;
    ASSERT_LE(std::abs(out.codes[i] - nearest), 1);
  }
  EXPECT_LE(differing, kN / 100'000);
}

TEST(Dyn8, DecodesLikeBitsandbytesAndHasItsCodebooks) {
  const Dyn8Fixture& fixture = dyn8_fixture();
  for (std::size_t i = 0; i < 256; ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(kernels::dyn8_codebook(true)[i]),
              std::bit_cast<std::uint32_t>(fixture.signed_book[i]));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(kernels::dyn8_codebook(false)[i]),
              std::bit_cast<std::uint32_t>(fixture.unsigned_book[i]));
  }
  const QuantSpec spec{QuantFormat::kDyn8, fixture.block, ScaleKind::kF32};
  const std::size_t n = fixture.values.size();
  for_each_quant_path([&](const std::string& path) {
    std::vector<float> out(n);
    EXPECT_FALSE(kernels::dequantize(spec, fixture.absmax.data(), fixture.codes.data(), n,
                                     FloatKind::kF32, out.data()));
    EXPECT_EQ(first_difference(out, fixture.decoded), n) << path;
    // Its CPU encoder is coarse near zero; the scales are the same, and most codes of the first
    // block, which is N(0, 1).
    std::vector<float> scales(fixture.absmax.size());
    std::vector<std::uint8_t> codes(n);
    kernels::quantize(spec, FloatKind::kF32, fixture.values.data(), n, nullptr, scales.data(),
                      codes.data());
    EXPECT_EQ(scales, fixture.absmax);
    std::size_t differing = 0;
    for (std::size_t i = 0; i < fixture.block; ++i) differing += codes[i] != fixture.codes[i];
    EXPECT_LE(differing, fixture.block / 100) << path;
  });
}

TEST(Dyn8, ReadsAMessageOfHivemind) {
  const Dyn8Fixture& fixture = dyn8_fixture();
  ByteReader message(fixture.hivemind_message);
  const auto absmax_count = message.one<std::int64_t>();
  const auto book_size = message.one<std::int64_t>();
  ASSERT_EQ(book_size, 256);
  const auto absmax = message.take<float>(static_cast<std::size_t>(absmax_count));
  const auto book = message.take<float>(256);
  EXPECT_TRUE(std::equal(book.begin(), book.end(), kernels::dyn8_codebook(true)));
  const auto codes = message.take<std::uint8_t>(message.left());
  ASSERT_EQ(codes.size(), fixture.values.size());
  std::vector<float> out(codes.size());
  EXPECT_FALSE(kernels::dequantize({QuantFormat::kDyn8, 4096, ScaleKind::kF32}, absmax.data(),
                                   codes.data(), codes.size(), FloatKind::kF32, out.data()));
  EXPECT_EQ(first_difference(out, fixture.decoded), out.size());
}

TEST(QuantPaths, VbmiIsAmongThem) {
  const auto paths = kernels::quant_paths();
  EXPECT_STREQ(paths.back().name, "baseline");
  if (!paths.front().vbmi) GTEST_SKIP() << "this CPU has no AVX-512 VBMI: that path is not tested";
  EXPECT_STREQ(paths.front().name, "avx512vbmi");
}

}  // namespace
}  // namespace swarmline::testing
