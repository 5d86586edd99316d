// Kernels in which every element stands alone: add, conversions, AdamW.

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/element.h"
#include "kernels/optimizer_element.h"

namespace swarmline::kernels::cuda {
namespace {

template <typename T>
__global__ void add_kernel(const T* __restrict__ source, T* __restrict__ destination,
                           std::size_t n) {
  for (std::size_t i = first_item(); i < n; i += item_stride()) destination[i] += source[i];
}

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

template <typename T>
cudaError_t add(const T* source, T* destination, std::size_t n, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  add_kernel<<<grid_for(n, kThreads), kThreads, 0, stream>>>(source, destination, n);
  return cudaGetLastError();
}

template <typename T>
__global__ void adamw_kernel(AdamwStep<T> step, const T* __restrict__ gradients, T* __restrict__ m,
                             T* __restrict__ v, T* __restrict__ parameters, std::size_t n) {
  for (std::size_t i = first_item(); i < n; i += item_stride()) {
    T mi = m[i];
    T vi = v[i];
    T pi = parameters[i];
    adamw_element(step, gradients[i], mi, vi, pi);
    m[i] = mi;
    v[i] = vi;
    parameters[i] = pi;
  }
}
template <typename T>
cudaError_t step_adamw(const AdamwStep<T>& step, const T* gradients, T* m, T* v, T* parameters,
                       std::size_t n, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  adamw_kernel<<<grid_for(n, kThreads), kThreads, 0, stream>>>(step, gradients, m, v, parameters,
                                                               n);
  return cudaGetLastError();
}

}  // namespace

cudaError_t add_into(const float* source, float* destination, std::size_t n, cudaStream_t stream) {
  return add(source, destination, n, stream);
}
cudaError_t add_into(const double* source, double* destination, std::size_t n,
                     cudaStream_t stream) {
  return add(source, destination, n, stream);
}
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
cudaError_t adamw(const AdamwStep<float>& step, const float* gradients, float* m, float* v,
                  float* parameters, std::size_t n, cudaStream_t stream) {
  return step_adamw(step, gradients, m, v, parameters, n, stream);
}
cudaError_t adamw(const AdamwStep<double>& step, const double* gradients, double* m, double* v,
                  double* parameters, std::size_t n, cudaStream_t stream) {
  return step_adamw(step, gradients, m, v, parameters, n, stream);
}

}  // namespace swarmline::kernels::cuda
