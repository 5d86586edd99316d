// The bodies of sums, of what a codec loses and of topk's decoding, run on the host.
#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/cuda/pairs_body.cuh"
#include "kernels/cuda/topk_body.cuh"
#include "kernels/kernels.h"
#include "tests/kernels/emulated_teams.h"
#include "tests/kernels/samples.h"

namespace swarmline::testing {
namespace {

namespace cuda = kernels::cuda;

class CudaPairsEmulation : public ::testing::TestWithParam<unsigned> {
 protected:
  template <typename Of>
  void run(const float* a, const float* b, float* out, std::size_t n) {
    const cuda::PairsArgs args{.a = a, .b = b, .out = out, .n = n};
    run_teams<cuda::PairsBody<Of>>(args, cuda::pairs_turns(args), cuda::kTeamThreads, GetParam());
  }
};

// Two tensors with what is not finite in them, and what kernels::add() makes of them.
struct Pair {
  std::vector<float> a, b, sum;
  explicit Pair(std::size_t n) : a(samples<float>(n, 1)), b(samples<float>(n, 2)), sum(n) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < n; i += 37) a[i] = i % 2 == 0 ? kInf : -kInf;
    for (std::size_t i = 0; i < n; i += 74) b[i] = -kInf;
    for (std::size_t i = 5; i < n; i += 91) b[i] = std::nanf("");
    kernels::add(a.data(), b.data(), sum.data(), n);
  }
};
// Which NaN arithmetic made is left open.
bool same_values(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y) ||
           (std::isnan(x) && std::isnan(y));
  });
}

TEST_P(CudaPairsEmulation, AddsWhereverATensorBegins) {
  for (const std::size_t n :
       {0UL, 1UL, 2UL, 3UL, 4UL, 5UL, 31UL, 4095UL, 4096UL, 4097UL, 12'345UL}) {
    const Pair pair(n);
    for (std::size_t at = 0; at < 64; ++at) {
      SCOPED_TRACE(std::to_string(n) + " at " + std::to_string(at));
      Guarded<float> a(pair.a, 4 * (at % 4)), b(pair.b, 4 * (at / 4 % 4)), sum(n, 4 * (at / 16));
      run<cuda::Sum>(a.data(), b.data(), sum.data(), n);
      ASSERT_TRUE(sum.intact());
      ASSERT_TRUE(same_values(sum.values(), pair.sum));
    }
  }
}

TEST_P(CudaPairsEmulation, AddsInPlace) {
  for (const std::size_t at : {0UL, 4UL}) {
    const Pair pair(9999);
    Guarded<float> a(pair.a, at), b(pair.b, at);
    run<cuda::Sum>(a.data(), b.data(), a.data(), pair.a.size());
    EXPECT_TRUE(same_values(a.values(), pair.sum));
    Guarded<float> first(pair.a, at);
    run<cuda::Sum>(first.data(), b.data(), b.data(), pair.a.size());
    EXPECT_TRUE(same_values(b.values(), pair.sum));
  }
}

TEST_P(CudaPairsEmulation, LosesNothingThatIsNotFinite) {
  const Pair pair(9999);
  std::vector<float> lost(pair.a.size()), expected(pair.a.size());
  for (std::size_t i = 0; i < lost.size(); ++i) {
    const float left = pair.a[i] - pair.b[i];
    expected[i] = std::isfinite(left) ? left : 0.0F;
  }
  run<cuda::Lost>(pair.a.data(), pair.b.data(), lost.data(), lost.size());
  EXPECT_EQ(first_difference(lost, expected), lost.size());
}

TEST_P(CudaPairsEmulation, ScattersWhatWasKept) {
  constexpr std::size_t kN = 2 * cuda::kTileElements + 1000;
  for (const std::uint32_t kept : {1U, 655U, 65536U}) {
    for (const float last : {1.0F, std::numeric_limits<float>::infinity()}) {
      std::vector<std::uint8_t> tiles(2 * cuda::topk_tile_bytes(kept) +
                                      cuda::topk_tile_bytes(cuda::kept_of(1000, kept)));
      std::vector<float> values(kN), expected(kN);
      for (std::size_t begin = 0; begin < kN; begin += cuda::kTileElements) {
        const std::size_t size = std::min<std::size_t>(cuda::kTileElements, kN - begin);
        const std::size_t here = cuda::kept_of(size, kept);
        std::uint8_t* const tile =
            tiles.data() + begin / cuda::kTileElements * cuda::topk_tile_bytes(kept);
        for (std::size_t k = 0; k < here; ++k) {
          const std::size_t position = k * size / here;
          const float value = k + 1 == here ? last : static_cast<float>(begin + k + 1);
          reinterpret_cast<std::uint16_t*>(tile)[k] = static_cast<std::uint16_t>(position);
          reinterpret_cast<float*>(tile + cuda::topk_values_at(here))[k] = value;
          expected[begin + position] = value;
        }
      }
      std::uint32_t bad = 0;
      run_teams<cuda::ScatterBody>({.tiles = tiles.data(),
                                    .n = kN,
                                    .kept = kept,
                                    .values = values.data(),
                                    .non_finite = &bad},
                                   cuda::tiles_of(kN), cuda::kTeamThreads, GetParam());
      EXPECT_EQ(first_difference(values, expected), kN) << kept;
      EXPECT_EQ(bad != 0, std::isinf(last));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, CudaPairsEmulation, ::testing::Values(1U, 255U));

}  // namespace
}  // namespace swarmline::testing
