// Launch shapes and small device helpers that the CUDA kernels share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>

namespace swarmline::kernels::cuda {

inline constexpr unsigned kThreads = 256;
inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kWarpsPerBlock = kThreads / kWarp;
// Enough to fill every device; loops stride over what is left.
inline constexpr std::size_t kGridMax = 1U << 16;

inline unsigned grid_for(std::size_t items, std::size_t items_per_block) {
  const std::size_t blocks = (items + items_per_block - 1) / items_per_block;
  return static_cast<unsigned>(blocks < kGridMax ? blocks : kGridMax);
}

__device__ inline std::size_t first_item() {
  return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::size_t item_stride() {
  return static_cast<std::size_t>(gridDim.x) * blockDim.x;
}
__device__ inline std::size_t first_warp() {
  return first_item() / kWarp;
}
__device__ inline std::size_t warp_stride() {
  return item_stride() / kWarp;
}
__device__ inline unsigned lane() {
  return threadIdx.x % kWarp;
}

__device__ inline void report(std::uint32_t* non_finite, bool bad) {
  if (bad && non_finite != nullptr) atomicOr(non_finite, 1U);
}

}  // namespace swarmline::kernels::cuda
