// Kernels of a stand-in for CUDA (cuda_stand_in.h) that are not written over Team, or are beside
// others that are not: their twins on the host, queued as a launch is.

#include <gtest/gtest.h>

#include "compression/sparse.h"
#include "kernels/cuda/error_sums.cuh"
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/team_launch.cuh"
#include "kernels/cuda/topk.cuh"
#include "kernels/cuda/topk_body.cuh"
#include "tests/kernels/cuda_stand_in.h"
#include "tests/kernels/host_places.h"

namespace swarmline::kernels::cuda {

using testing::queue_kernel;

cudaError_t bf16_to_fp32(const std::uint16_t* from, float* to, std::size_t n,
                         std::uint32_t* non_finite, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  return queue_kernel(stream, {from, to, non_finite}, [=] {
    if (kernels::bf16_to_fp32(from, to, n) && non_finite != nullptr) *non_finite |= 1U;
  });
}

cudaError_t select_largest_wire(const float* values, std::size_t n, std::uint32_t kept, void* tiles,
                                std::uint32_t* non_finite, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  return queue_kernel(stream, {values, tiles, non_finite}, [=] {
    for (std::size_t begin = 0; begin < n; begin += kTileElements) {
      const std::size_t size = std::min<std::size_t>(kTileElements, n - begin);
      auto* const tile =
          static_cast<std::byte*>(tiles) + begin / kTileElements * topk_tile_bytes(kept);
      const std::size_t here = kept_of(size, kept);
      if (select_largest(values + begin, size, here, tile, tile + topk_values_at(here)))
        *non_finite |= 1U;
    }
  });
}
cudaError_t scatter_wire(const void* tiles, std::size_t n, std::uint32_t kept, float* values,
                         std::uint32_t* non_finite, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  const cudaError_t cleared = cudaMemsetAsync(values, 0, n * sizeof(float), stream);
  if (cleared != cudaSuccess) return cleared;
  return launch_turns<ScatterBody>({.tiles = static_cast<const std::uint8_t*>(tiles),
                                    .n = n,
                                    .kept = kept,
                                    .values = values,
                                    .non_finite = non_finite},
                                   tiles_of(n), kTeamThreads, stream);
}

cudaError_t error_sums_workspace(std::size_t, std::size_t& bytes) {
  bytes = 1;
  return cudaSuccess;
}
cudaError_t error_sums(const float* values, const float* decoded, std::size_t n, void* workspace,
                       std::size_t, ErrorSums* result, cudaStream_t stream) {
  return queue_kernel(stream, {values, decoded, workspace, result}, [=] {
    *result = {};
    for (std::size_t i = 0; i < n; ++i) {
      const double x = values[i];
      const double d = decoded[i] - x;
      result->squared_error += d * d;
      result->squared_norm += x * x;
    }
  });
}

}  // namespace swarmline::kernels::cuda
