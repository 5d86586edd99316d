// fp32 to and from halves and bfloats.

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/element.h"

namespace swarmline::kernels::cuda {
namespace {

struct ToHalf {
  __device__ std::uint16_t operator()(float value) const { return half_of(value); }
  __device__ static bool bad(float, std::uint16_t half) { return (half & 0x7C00U) == 0x7C00U; }
};
struct FromHalf {
  __device__ float operator()(std::uint16_t half) const { return float_of_half(half); }
  __device__ static bool bad(std::uint16_t half, float) { return (half & 0x7C00U) == 0x7C00U; }
};
struct ToBfloat {
  __device__ std::uint16_t operator()(float value) const { return bfloat_of(value); }
  __device__ static bool bad(float, std::uint16_t code) { return (code & 0x7F80U) == 0x7F80U; }
};
struct FromBfloat {
  __device__ float operator()(std::uint16_t code) const { return float_of_bfloat(code); }
  __device__ static bool bad(std::uint16_t code, float) { return (code & 0x7F80U) == 0x7F80U; }
};

template <typename F, typename From, typename To>
__global__ void convert_kernel(const From* __restrict__ source, To* __restrict__ destination,
                               std::size_t n, std::uint32_t* non_finite) {
  bool bad = false;
  for (std::size_t i = first_item(); i < n; i += item_stride()) {
    const From from = source[i];
    const To to = F{}(from);
    bad |= F::bad(from, to);
    destination[i] = to;
  }
  report(non_finite, bad);
}
template <typename F, typename From, typename To>
cudaError_t convert(const From* source, To* destination, std::size_t n, std::uint32_t* non_finite,
                    cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  convert_kernel<F>
      <<<grid_for(n, kThreads), kThreads, 0, stream>>>(source, destination, n, non_finite);
  return cudaGetLastError();
}

}  // namespace

cudaError_t fp32_to_fp16(const float* source, std::uint16_t* destination, std::size_t n,
                         std::uint32_t* non_finite, cudaStream_t stream) {
  return convert<ToHalf>(source, destination, n, non_finite, stream);
}
cudaError_t fp16_to_fp32(const std::uint16_t* source, float* destination, std::size_t n,
                         std::uint32_t* non_finite, cudaStream_t stream) {
  return convert<FromHalf>(source, destination, n, non_finite, stream);
}
cudaError_t fp32_to_bf16(const float* source, std::uint16_t* destination, std::size_t n,
                         std::uint32_t* non_finite, cudaStream_t stream) {
  return convert<ToBfloat>(source, destination, n, non_finite, stream);
}
cudaError_t bf16_to_fp32(const std::uint16_t* source, float* destination, std::size_t n,
                         std::uint32_t* non_finite, cudaStream_t stream) {
  return convert<FromBfloat>(source, destination, n, non_finite, stream);
}

}  // namespace swarmline::kernels::cuda
