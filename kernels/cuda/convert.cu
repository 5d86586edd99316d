// bf16 to fp32.

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/element.h"

namespace swarmline::kernels::cuda {
namespace {

__global__ void widen_bf16_kernel(const std::uint16_t* __restrict__ source,
                                  float* __restrict__ destination, std::size_t n,
                                  std::uint32_t* non_finite) {
  bool bad = false;
  for (std::size_t i = first_item(); i < n; i += item_stride()) {
    const std::uint16_t code = source[i];
    bad |= (code & 0x7F80U) == 0x7F80U;
    destination[i] = float_of_bfloat(code);
  }
  report(non_finite, bad);
}

}  // namespace

cudaError_t bf16_to_fp32(const std::uint16_t* source, float* destination, std::size_t n,
                         std::uint32_t* non_finite, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  widen_bf16_kernel<<<grid_for(n, kThreads), kThreads, 0, stream>>>(source, destination, n,
                                                                    non_finite);
  return cudaGetLastError();
}

}  // namespace swarmline::kernels::cuda
