// Radix selection of the smallest magnitude that is kept, eight bits a round, then compaction in
// index order: one block of threads a tile, no order of threads matters.

#include <cub/block/block_scan.cuh>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/team_launch.cuh"
#include "kernels/cuda/topk.cuh"
#include "kernels/cuda/topk_body.cuh"

namespace swarmline::kernels::cuda {
namespace {

constexpr unsigned kTopkThreads = 512;
constexpr unsigned kDigits = 256;  // of a round
constexpr unsigned kDigitBits = 8;
using Scan = cub::BlockScan<unsigned, kTopkThreads>;

struct TopkShared {
  typename Scan::TempStorage scan;
  unsigned histogram[kDigits];
  unsigned digit;   // of the smallest kept magnitude
  unsigned wanted;  // how many to keep of those that begin like it
};

// The smallest magnitude that is kept; `wanted` becomes how many of that magnitude are.
__device__ std::uint32_t smallest_kept(TopkShared& shared, const float* values, unsigned n,
                                       unsigned& wanted) {
  std::uint32_t prefix = 0;
  std::uint32_t decided = 0;  // mask
  for (unsigned round = 0; round < 32 / kDigitBits; ++round) {
    const unsigned shift = 32 - kDigitBits * (round + 1);
    for (unsigned i = threadIdx.x; i < kDigits; i += kTopkThreads) shared.histogram[i] = 0;
    __syncthreads();
    for (unsigned i = threadIdx.x; i < n; i += kTopkThreads) {
      const std::uint32_t magnitude = bits_of(values[i]) & kFloatMagnitude;
      if ((magnitude & decided) == prefix) {
        atomicAdd(&shared.histogram[(magnitude >> shift) % kDigits], 1U);
      }
    }
    __syncthreads();
    // From the largest digit down, how many come before.
    const unsigned digit = kDigits - 1 - threadIdx.x;
    const unsigned here = threadIdx.x < kDigits ? shared.histogram[digit] : 0;
    unsigned before = 0;
    Scan(shared.scan).ExclusiveSum(here, before);
    if (before < wanted && wanted <= before + here) {
      shared.digit = digit;
      shared.wanted = wanted - before;
    }
    __syncthreads();
    prefix |= shared.digit << shift;
    decided |= (kDigits - 1) << shift;
    wanted = shared.wanted;
    __syncthreads();
  }
  return prefix;
}

__device__ void compact(TopkShared& shared, const float* values, unsigned n, std::uint32_t smallest,
                        unsigned equals_kept, std::uint16_t* positions, float* kept_values,
                        std::uint32_t* non_finite) {
  unsigned larger_before = 0;
  unsigned equals_before = 0;
  for (unsigned begin = 0; begin < n; begin += kTopkThreads) {
    const unsigned i = begin + threadIdx.x;
    const float value = i < n ? values[i] : 0.0F;
    const std::uint32_t magnitude = bits_of(value) & kFloatMagnitude;
    const bool is_larger = i < n && magnitude > smallest;
    const bool is_equal = i < n && magnitude == smallest;
    unsigned before = 0;
    unsigned all = 0;  // both counts in one sum; neither passes 512
    Scan(shared.scan).ExclusiveSum((is_larger ? 1U : 0U) | (is_equal ? 1U << 16 : 0U), before, all);
    const unsigned equals = equals_before + (before >> 16);
    if (is_larger || (is_equal && equals < equals_kept)) {
      const unsigned rank = larger_before + (before & 0xFFFFU) + min(equals, equals_kept);
      positions[rank] = static_cast<std::uint16_t>(i);
      kept_values[rank] = value;
      report(non_finite, not_finite(value));
    }
    larger_before += all & 0xFFFFU;
    equals_before += all >> 16;
    __syncthreads();  // the scan's storage is used again
  }
}

__global__ void __launch_bounds__(kTopkThreads)
    topk_kernel(const float* __restrict__ values, std::uint64_t n, std::uint32_t kept,
                std::uint8_t* __restrict__ tiles, std::uint32_t* non_finite) {
  __shared__ TopkShared shared;
  const std::uint64_t count = tiles_of(n);
  for (std::uint64_t tile = blockIdx.x; tile < count; tile += gridDim.x) {
    const std::uint64_t begin = tile * kTileElements;
    const auto size = static_cast<unsigned>(min(n - begin, kTileElements));
    const std::uint64_t kept_here = kept_of(size, kept);
    std::uint8_t* const base = tiles + tile * topk_tile_bytes(kept);
    auto wanted = static_cast<unsigned>(kept_here);
    const std::uint32_t smallest = smallest_kept(shared, values + begin, size, wanted);
    compact(shared, values + begin, size, smallest, wanted, reinterpret_cast<std::uint16_t*>(base),
            reinterpret_cast<float*>(base + topk_values_at(kept_here)), non_finite);
  }
}

}  // namespace

cudaError_t select_largest_wire(const float* values, std::size_t n, std::uint32_t kept, void* tiles,
                                std::uint32_t* non_finite, cudaStream_t stream) {
  if (kept == 0 || kept > kTileElements) return cudaErrorInvalidValue;
  if (n == 0) return cudaSuccess;
  const std::uint64_t count = tiles_of(n);
  topk_kernel<<<static_cast<unsigned>(count < kTeamsMax ? count : kTeamsMax), kTopkThreads, 0,
                stream>>>(values, n, kept, static_cast<std::uint8_t*>(tiles), non_finite);
  return cudaGetLastError();
}

cudaError_t scatter_wire(const void* tiles, std::size_t n, std::uint32_t kept, float* values,
                         std::uint32_t* non_finite, cudaStream_t stream) {
  if (kept == 0 || kept > kTileElements) return cudaErrorInvalidValue;
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

std::size_t topk_tiles_bytes(std::size_t n, std::uint32_t kept) {
  const std::size_t rest = n % kTileElements;
  return n / kTileElements * topk_tile_bytes(kept) +
         (rest != 0 ? topk_tile_bytes(kept_of(rest, kept)) : 0);
}

}  // namespace swarmline::kernels::cuda
