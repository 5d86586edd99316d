// Stochastic rounding: the draws, the same bits on every path and in any number of pieces, no bias,
// and the spread that it must have.
#include <gtest/gtest.h>

#include "kernels/format/philox.h"
#include "tests/kernels/block_harness.h"

namespace swarmline::testing {
namespace {

StochasticKey key_of(std::uint64_t seed, std::uint64_t first_element = 0) {
  return {.seed = seed, .stream = {7, 0xFFFFFFFFU, 3}, .first_element = first_element};
}

TEST(Philox, KnownAnswers) {  // of Random123's kat_vectors
  const auto expect = [](kernels::PhiloxWords counter, std::uint32_t key0, std::uint32_t key1,
                         std::array<std::uint32_t, 4> answer) {
    const kernels::PhiloxWords got = kernels::philox(counter, key0, key1);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(got.word[i], answer.at(i));
  };
  expect({{0, 0, 0, 0}}, 0, 0, {0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8});
  expect({{~0U, ~0U, ~0U, ~0U}}, ~0U, ~0U, {0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD});
  expect({{0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}}, 0xA4093822, 0x299F31D0,
         {0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1});
}

class Stochastic : public ::testing::TestWithParam<QuantSpec> {};
class StochasticBlocks : public Stochastic {};  // lin8 has tests of its own

TEST_P(StochasticBlocks, SameBitsOnEveryPath) {
  QuantSpec spec = GetParam();
  for (ScaleKind scales : kScaleKinds) {
    spec.scales = scales;
    for (FloatKind source : kFloatKinds) {
      for (std::size_t n : {0UL, 1UL, 33UL, 64UL, 255UL, 256UL, 4097UL, 100'003UL}) {
        const StochasticKey key = key_of(n * 0x123456789ABCDEFULL, 8 * n);
        expect_quantizes(spec, source, block_samples(n, spec.block, n), &key, n % 2 == 0 ? 0 : 4);
      }
    }
  }
}

TEST_P(StochasticBlocks, TheCounterGoesOnBeyond32Bits) {
  const QuantSpec spec = GetParam();
  const StochasticKey key = key_of(5, (std::uint64_t{1} << 35) - 2048);
  expect_quantizes(spec, FloatKind::kF32, samples<float>(2048, 1), &key, 0);
}

TEST_P(Stochastic, PiecesGiveTheBitsOfTheWhole) {
  const QuantSpec spec = GetParam();
  constexpr std::size_t kN = 20'011;
  const std::vector<float> x = samples<float>(kN, 4);
  const StochasticKey key = key_of(99, 800);
  for_each_quant_path([&](const std::string& path) {
    SCOPED_TRACE(path + " " + describe(spec, kN));
    std::vector<std::uint8_t> scales(4 * quant_blocks(spec, kN)), codes(code_bytes(spec, kN));
    std::vector<std::uint8_t> scales2(scales.size()), codes2(codes.size());
    quantize(spec, FloatKind::kF32, x.data(), kN, &key, scales.data(), codes.data());
    std::size_t piece = spec.block;
    for (std::size_t begin = 0; begin < kN; begin += piece, piece += 3 * spec.block) {
      StochasticKey here = key;
      here.first_element += begin;
      const std::size_t size = std::min(piece, kN - begin);
      quantize(spec, FloatKind::kF32, x.data() + begin, size, &here,
               scales2.data() + 4 * quant_blocks(spec, begin),
               codes2.data() + code_bytes(spec, begin));
    }
    EXPECT_EQ(first_difference(scales, scales2), scales.size());
    EXPECT_EQ(first_difference(codes, codes2), codes.size());
  });
}

TEST_P(Stochastic, EveryPartOfTheKeyMatters) {
  const QuantSpec spec = GetParam();
  constexpr std::size_t kN = 4096;
  const std::vector<float> x = samples<float>(kN, 4);
  std::vector<std::vector<std::uint8_t>> seen;
  const StochasticKey base = key_of(1);
  std::vector<StochasticKey> keys(7, base);
  keys[1].seed += 1;
  keys[2].seed += std::uint64_t{1} << 32;
  keys[3].stream[0] += 1;
  keys[4].stream[1] += 1;
  keys[5].stream[2] += 1;
  keys[6].first_element += 8;
  for (const StochasticKey& key : keys) {
    std::vector<std::uint8_t> scales(4 * quant_blocks(spec, kN)), codes(code_bytes(spec, kN));
    quantize(spec, FloatKind::kF32, x.data(), kN, &key, scales.data(), codes.data());
    for (const auto& other : seen) EXPECT_NE(other, codes);
    seen.push_back(codes);
  }
}

std::vector<float> normal_values(std::size_t n) {
  Rng rng(17);
  std::vector<float> x(n);
  for (float& a : x) a = static_cast<float>(rng.normal());
  return x;
}
std::vector<float> through(const QuantSpec& spec, const std::vector<float>& x,
                           const StochasticKey* key) {
  std::vector<std::uint8_t> scales(4 * quant_blocks(spec, x.size()));
  std::vector<std::uint8_t> codes(code_bytes(spec, x.size()));
  std::vector<float> out(x.size());
  quantize(spec, FloatKind::kF32, x.data(), x.size(), key, scales.data(), codes.data());
  dequantize(spec, scales.data(), codes.data(), x.size(), FloatKind::kF32, out.data());
  return out;
}

// For each element the mean error over many keys, in units of its own standard error: beyond 6 by
// chance in one of 5e8 elements, its square 1 on average. Elements that are almost on a code have
// too few draws to the other one for such units; the largest element of a block is met exactly.
TEST_P(Stochastic, IsUnbiased) {
  constexpr std::size_t kN = 2048;
  constexpr int kKeys = 1000;
  const std::vector<float> x = normal_values(kN);
  std::vector<double> sum(kN), squares(kN);
  for (int k = 0; k < kKeys; ++k) {
    const StochasticKey key = key_of(static_cast<std::uint64_t>(k));
    const std::vector<float> y = through(GetParam(), x, &key);
    for (std::size_t i = 0; i < kN; ++i) {
      const double error = double{y[i]} - double{x[i]};
      sum[i] += error;
      squares[i] += error * error;
    }
  }
  double mean_square = 0, total = 0, counted = 0;
  for (std::size_t begin = 0; begin < kN; begin += GetParam().block) {
    const std::size_t end = begin + GetParam().block;
    std::vector<double> variance;
    for (std::size_t i = begin; i < end; ++i) {
      const double mean = sum[i] / kKeys;
      variance.push_back(squares[i] / kKeys - mean * mean);
    }
    const double largest = *std::max_element(variance.begin(), variance.end());
    for (std::size_t i = begin; i < end; ++i) {
      if (variance[i - begin] < 0.1 * largest) continue;
      const double z = sum[i] / std::sqrt(variance[i - begin] * kKeys);
      EXPECT_LT(std::abs(z), 6) << i;
      mean_square += z * z;
      total += z;
      ++counted;
    }
  }
  EXPECT_GT(counted, 0.8 * kN);
  EXPECT_LT(std::abs(total) / std::sqrt(counted), 4);
  EXPECT_NEAR(mean_square / counted, 1.0, 0.15);
}

// With places between codes uniform, rounding to nearest has a variance of 1/12 of a step's square,
// stochastic rounding 1/6.
TEST_P(Stochastic, HasTwiceTheVarianceOfRoundingToNearest) {
  const std::vector<float> x = normal_values(1 << 18);
  const auto error = [&](const StochasticKey* key) {
    const std::vector<float> y = through(GetParam(), x, key);
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      sum += (double{y[i]} - double{x[i]}) * (double{y[i]} - double{x[i]});
    }
    return sum;
  };
  const StochasticKey key = key_of(3);
  EXPECT_NEAR(error(&key) / error(nullptr), 2.0, 0.05);
}

constexpr QuantSpec kH8 = {QuantFormat::kH8, 64};
constexpr QuantSpec kInt4 = {QuantFormat::kInt4, 32};
constexpr QuantSpec kH4 = {QuantFormat::kH4, 32};
INSTANTIATE_TEST_SUITE_P(All, Stochastic,
                         ::testing::Values(QuantSpec{QuantFormat::kLin8, 256}, kH8, kInt4, kH4));
INSTANTIATE_TEST_SUITE_P(All, StochasticBlocks, ::testing::Values(kH8, kInt4, kH4));

}  // namespace
}  // namespace swarmline::testing
