// The CUDA twins give the bits of the CPU kernels, at every size. Skips, with the reason, without a
// GPU.

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/tiles.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/samples.h"

namespace swarmline::kernels {
namespace {

using testing::first_difference;
using testing::kSizes;
using testing::samples;

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t n) : n_(n), bytes_(n * sizeof(T)) {}
  explicit DeviceArray(const std::vector<T>& values)
      : n_(values.size()), bytes_(values.data(), values.size() * sizeof(T)) {}

  T* data() { return reinterpret_cast<T*>(bytes_.data()); }
  std::vector<T> values() {
    std::vector<T> out(n_);
    bytes_.copy_to(out.data());
    return out;
  }

 private:
  std::size_t n_;
  testing::DeviceBytes bytes_;
};

class Cuda : public testing::CudaTest {
 protected:
  // Waits for what `status` launched.
  void expect_done(cudaError_t status) {
    EXPECT_EQ(status, cudaSuccess) << cudaGetErrorString(status);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
};

// All bit patterns of halves, a sweep over those of floats, and ordinary values.
std::vector<float> float_patterns() {
  std::vector<float> values = samples<float>(1'000'003, 3);
  for (std::uint64_t bits = 0; bits < (1ULL << 32); bits += 1021) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  return values;
}

// 16-bit codes as they lie in a wire buffer: each tile begins so many after the one before.
constexpr std::size_t kTileCodes = (cuda::kTileElements * sizeof(std::uint16_t) +
                                    cuda::kTileHashBytes + cuda::kTileAlignment - 1) /
                                   cuda::kTileAlignment * cuda::kTileAlignment /
                                   sizeof(std::uint16_t);

std::size_t place_in_tiles(std::size_t i) {
  return i / cuda::kTileElements * kTileCodes + i % cuda::kTileElements;
}

std::vector<std::uint16_t> in_tiles(const std::vector<std::uint16_t>& codes) {
  std::vector<std::uint16_t> tiles(place_in_tiles(codes.size() - 1) + 1);
  for (std::size_t i = 0; i < codes.size(); ++i) tiles[place_in_tiles(i)] = codes[i];
  return tiles;
}

std::vector<std::uint16_t> out_of_tiles(const std::vector<std::uint16_t>& tiles, std::size_t n) {
  std::vector<std::uint16_t> codes(n);
  for (std::size_t i = 0; i < n; ++i) codes[i] = tiles[place_in_tiles(i)];
  return codes;
}

TEST_F(Cuda, NarrowedValuesOfEveryKindOfBits) {
  const std::vector<float> x = float_patterns();
  std::vector<std::uint16_t> expected(x.size());
  DeviceArray<float> in(x);
  DeviceArray<std::uint16_t> tiles(place_in_tiles(x.size() - 1) + 1);
  for (const FloatKind code : {FloatKind::kF16, FloatKind::kBf16}) {
    DeviceArray<std::uint32_t> flag(std::vector<std::uint32_t>{0});
    expect_done(cuda::narrow_wire(code, FloatKind::kF32, in.data(), x.size(), tiles.data(),
                                  flag.data(), stream_));
    const auto narrow = code == FloatKind::kF16 ? fp32_to_fp16 : fp32_to_bf16;
    EXPECT_TRUE(narrow(x.data(), expected.data(), x.size()));
    EXPECT_EQ(first_difference(out_of_tiles(tiles.values(), x.size()), expected), x.size());
    EXPECT_EQ(flag.values()[0], 1U);
  }
}

TEST_F(Cuda, WidenedCodesOfEveryKind) {
  std::vector<std::uint16_t> codes(2 * 65536);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint16_t>(i);
  std::vector<float> expected(codes.size());
  DeviceArray<float> wide(codes.size());
  DeviceArray<std::uint16_t> tiles(in_tiles(codes)), in(codes);
  for (const FloatKind code : {FloatKind::kF16, FloatKind::kBf16}) {
    expect_done(cuda::widen_wire(code, tiles.data(), codes.size(), FloatKind::kF32, wide.data(),
                                 nullptr, stream_));
    const auto widen = code == FloatKind::kF16 ? fp16_to_fp32 : bf16_to_fp32;
    widen(codes.data(), expected.data(), codes.size());
    EXPECT_EQ(first_difference(wide.values(), expected), codes.size());
  }
  expect_done(cuda::bf16_to_fp32(in.data(), wide.data(), codes.size(), nullptr, stream_));
  EXPECT_EQ(first_difference(wide.values(), expected), codes.size());
}

TEST_F(Cuda, SumOfSquares) {
  const auto check = [&]<typename T>(T) {
    std::vector<std::size_t> sizes(kSizes.begin(), kSizes.end());
    sizes.push_back(kSumBlock * kSumBlock + 3 * kSumBlock + 77);
    for (const std::size_t n : sizes) {
      const std::vector<T> x = samples<T>(n, 6);
      DeviceArray<T> in(x);
      DeviceArray<double> workspace(cuda::sum_of_squares_workspace(n)), result(1);
      expect_done(cuda::sum_of_squares(in.data(), n, workspace.data(), result.data(), stream_));
      EXPECT_EQ(result.values()[0], sum_of_squares(x.data(), n)) << n;
    }
  };
  check(float{});
  check(double{});
}

// Wherever each of the three begins, and in place.
TEST_F(Cuda, SumsAndWhatIsLost) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const std::size_t n : kSizes) {
    std::vector<float> a = samples<float>(n, 8), b = samples<float>(n, 9);
    for (std::size_t i = 0; i < n; i += 37) a[i] = i % 2 == 0 ? kInf : -kInf;
    std::vector<float> sum(n), lost(n), got(n);
    add(a.data(), b.data(), sum.data(), n);
    for (std::size_t i = 0; i < n; ++i) {
      const float left = a[i] - b[i];
      lost[i] = std::isfinite(left) ? left : 0.0F;
    }
    for (std::size_t at = 0; at < 64; ++at) {
      SCOPED_TRACE(std::to_string(n) + " at " + std::to_string(at));
      const auto floats = [](testing::DeviceBytes& bytes) {
        return reinterpret_cast<float*>(bytes.data());
      };
      testing::DeviceBytes x(a.data(), 4 * n, 4 * (at % 4)), y(b.data(), 4 * n, 4 * (at / 4 % 4));
      testing::DeviceBytes out(4 * n, 4 * (at / 16));
      expect_done(cuda::add(floats(x), floats(y), floats(out), n, stream_));
      out.copy_to(got.data());
      ASSERT_EQ(first_difference(got, sum), n);
      expect_done(cuda::lost_values(floats(x), floats(y), floats(y), n, stream_));
      y.copy_to(got.data());
      ASSERT_EQ(first_difference(got, lost), n);
    }
  }
}

TEST_F(Cuda, Digest) {
  for (const std::uint64_t whole : {0UL, 1UL, 33UL}) {
    for (const std::uint64_t end : {0UL, 1UL, 8UL, 239UL, 1024UL, 2049UL, kDigestPiece - 1}) {
      std::vector<std::uint8_t> x(whole * kDigestPiece + end);
      Rng rng(x.size());
      for (std::uint8_t& byte : x) byte = static_cast<std::uint8_t>(rng.next_u64() >> 56);
      DeviceArray<std::uint8_t> in(x);
      DeviceArray<std::uint64_t> workspace(cuda::digest_workspace(x.size())), result(1);
      expect_done(cuda::digest(in.data(), x.size(), workspace.data(), result.data(), stream_));
      EXPECT_EQ(result.values()[0], digest(std::as_bytes(std::span(x)))) << x.size();
    }
  }
}

}  // namespace
}  // namespace swarmline::kernels
