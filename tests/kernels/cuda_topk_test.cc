// CUDA's selection of the largest against the codec's on the host, tile by tile. Skips, with the
// reason, without a GPU.
#include <algorithm>
#include <cstring>
#include <limits>

#include "compression/sparse.h"
#include "compression/wire.h"
#include "kernels/cuda/topk.cuh"
#include "tests/kernels/device_array.h"
#include "tests/kernels/samples.h"

namespace swarmline::testing {
namespace {

class CudaTopk : public CudaTest {
 protected:
  void check(const std::vector<float>& x, std::uint32_t kept) {
    SCOPED_TRACE(std::to_string(x.size()) + " elements, kept " + std::to_string(kept));
    const std::size_t bytes = kernels::cuda::topk_tiles_bytes(x.size(), kept);
    std::vector<std::byte> expected(bytes), got(bytes);
    const bool bad = select_on_host(x, kept, expected);
    DeviceBytes values(x.data(), x.size() * sizeof(float)), tiles(bytes), flag(4);
    ASSERT_EQ(kernels::cuda::select_largest_wire(
                  reinterpret_cast<const float*>(values.data()), x.size(), kept, tiles.data(),
                  reinterpret_cast<std::uint32_t*>(flag.data()), stream_),
              cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    tiles.copy_to(got.data());
    std::uint32_t flagged = 0;
    flag.copy_to(&flagged);
    EXPECT_EQ(first_difference(expected, got), bytes);
    EXPECT_EQ(flagged, bad ? 1U : 0U);
    expect_scattered(x.size(), kept, expected, bad);
  }

 private:
  void expect_scattered(std::size_t n, std::uint32_t kept, const std::vector<std::byte>& wire,
                        bool bad) {
    const CodecSpec codec{.kind = CodecKind::kTopK, .kept = kept};
    std::vector<float> expected(n), got(n);
    for (std::size_t begin = 0, at = 0; begin < n; begin += kWireTileElements) {
      const std::size_t size = std::min<std::size_t>(kWireTileElements, n - begin);
      const TileShape shape = tile_shape(codec, size, DType::kF32);
      ASSERT_TRUE(scatter_sparse(wire.data() + at, wire.data() + at + shape.codes_at(),
                                 kept_of_tile(codec, size), size, DType::kF32,
                                 reinterpret_cast<std::byte*>(expected.data() + begin)));
      at += shape.total_bytes();
    }
    DeviceBytes tiles(wire.data(), wire.size()), values(n * sizeof(float), 4), flag(4);
    ASSERT_EQ(
        kernels::cuda::scatter_wire(tiles.data(), n, kept, reinterpret_cast<float*>(values.data()),
                                    reinterpret_cast<std::uint32_t*>(flag.data()), stream_),
        cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    values.copy_to(got.data());
    std::uint32_t flagged = 0;
    flag.copy_to(&flagged);
    EXPECT_EQ(first_difference(expected, got), n);
    EXPECT_EQ(flagged, bad ? 1U : 0U);
  }
  static bool select_on_host(const std::vector<float>& x, std::uint32_t kept,
                             std::vector<std::byte>& tiles) {
    const CodecSpec codec{.kind = CodecKind::kTopK, .kept = kept};
    bool bad = false;
    std::size_t at = 0;
    for (std::size_t begin = 0; begin < x.size(); begin += kWireTileElements) {
      const std::size_t size = std::min<std::size_t>(kWireTileElements, x.size() - begin);
      const TileShape shape = tile_shape(codec, size, DType::kF32);
      bad |= select_largest(x.data() + begin, size, kept_of_tile(codec, size), tiles.data() + at,
                            tiles.data() + at + shape.codes_at());
      at += shape.total_bytes();
    }
    EXPECT_EQ(at, tiles.size());
    return bad;
  }
};

TEST_F(CudaTopk, SizesAndShares) {
  for (std::size_t n : {1, 31, 512, 513, 65535, 65536, 65537, 200001}) {
    for (std::uint32_t kept : {1U, 655U, 6554U, 65536U}) check(samples<float>(n, n), kept);
  }
}
TEST_F(CudaTopk, EqualsKeepTheLowerIndex) {
  std::vector<float> x(70000, 1.0F);
  for (std::size_t i = 0; i < x.size(); i += 3) x[i] = -1.0F;
  x[100] = 2.0F;
  x[60000] = -3.0F;
  check(x, 655);
  check(std::vector<float>(70000, 0.0F), 655);
}
TEST_F(CudaTopk, NanAndInfinityAreTheLargest) {
  std::vector<float> x = samples<float>(70000, 9);
  x[5] = std::numeric_limits<float>::infinity();
  x[69000] = std::nanf("");
  check(x, 3);
}

}  // namespace
}  // namespace swarmline::testing
