// Blockwise int8, one warp a block: the warp's maximum of magnitudes needs no shared memory, and
// the second reading of a block (16 KiB at most) comes from the cache.

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/element.h"

namespace swarmline::kernels::cuda {
namespace {

constexpr unsigned kAllLanes = 0xFFFFFFFF;

__global__ void quantize_kernel(const float* __restrict__ values, std::size_t n, std::size_t block,
                                float* __restrict__ scales, std::int8_t* __restrict__ codes,
                                std::uint32_t* non_finite) {
  const std::size_t blocks = (n + block - 1) / block;
  for (std::size_t b = first_warp(); b < blocks; b += warp_stride()) {
    const std::size_t begin = b * block;
    const std::size_t end = begin + block < n ? begin + block : n;
    std::uint32_t absmax = 0;
    for (std::size_t i = begin + lane(); i < end; i += kWarp) {
      const std::uint32_t magnitude = bits_of(values[i]) & kFloatMagnitude;
      absmax = magnitude > absmax ? magnitude : absmax;
    }
    for (unsigned width = kWarp / 2; width > 0; width /= 2) {
      const std::uint32_t other = __shfl_xor_sync(kAllLanes, absmax, width);
      absmax = other > absmax ? other : absmax;
    }
    const float scale = int8_scale(absmax);
    if (lane() == 0) {
      scales[b] = scale;
      report(non_finite, not_finite(scale));
    }
    const bool has_codes = scale > 0;  // neither zero nor NaN
    for (std::size_t i = begin + lane(); i < end; i += kWarp) {
      codes[i] = has_codes ? int8_code(values[i], scale) : std::int8_t{0};
    }
  }
}

__global__ void dequantize_kernel(const float* __restrict__ scales,
                                  const std::int8_t* __restrict__ codes, std::size_t n,
                                  std::size_t block, float* __restrict__ values,
                                  std::uint32_t* non_finite) {
  const std::size_t blocks = (n + block - 1) / block;
  for (std::size_t b = first_warp(); b < blocks; b += warp_stride()) {
    const std::size_t begin = b * block;
    const std::size_t end = begin + block < n ? begin + block : n;
    const float scale = scales[b];
    const bool bad = int8_scale_is_bad(scale);
    if (lane() == 0) report(non_finite, bad);
    for (std::size_t i = begin + lane(); i < end; i += kWarp) {
      values[i] = bad ? float_of(kFloatNan) : int8_value(codes[i], scale);
    }
  }
}

std::size_t blocks_of(std::size_t n, std::size_t block) {
  return (n + block - 1) / block;
}

}  // namespace

cudaError_t quantize_int8(const float* values, std::size_t n, std::size_t block, float* scales,
                          std::int8_t* codes, std::uint32_t* non_finite, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  quantize_kernel<<<grid_for(blocks_of(n, block), kWarpsPerBlock), kThreads, 0, stream>>>(
      values, n, block, scales, codes, non_finite);
  return cudaGetLastError();
}
cudaError_t dequantize_int8(const float* scales, const std::int8_t* codes, std::size_t n,
                            std::size_t block, float* values, std::uint32_t* non_finite,
                            cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  dequantize_kernel<<<grid_for(blocks_of(n, block), kWarpsPerBlock), kThreads, 0, stream>>>(
      scales, codes, n, block, values, non_finite);
  return cudaGetLastError();
}

}  // namespace swarmline::kernels::cuda
