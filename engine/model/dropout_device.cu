#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "engine/model/dropout_device.h"
#include "kernels/cuda/device_state.h"
#include "kernels/format/philox.h"

namespace swarmline::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kGridMax = 1U << 16;
constexpr std::size_t kDrawn = 4;  // elements of one Philox block

__device__ float multiplied(float x, float factor) {
  return __fmul_rn(x, factor);
}
__device__ double multiplied(double x, double factor) {
  return __dmul_rn(x, factor);
}
__device__ __nv_bfloat16 multiplied(__nv_bfloat16 x, float factor) {
  return __float2bfloat16_rn(__fmul_rn(__bfloat162float(x), factor));
}

template <typename T, typename Factor>
__global__ void dropout_kernel(DeviceDropout mask, std::uint32_t threshold, Factor kept,
                               std::size_t n, const T* in, T* out) {
  const std::size_t blocks = (n + kDrawn - 1) / kDrawn;
  const std::size_t stride = std::size_t{gridDim.x} * kThreads;
  for (std::size_t b = std::size_t{blockIdx.x} * kThreads + threadIdx.x; b < blocks; b += stride) {
    const kernels::PhiloxWords counter = {{static_cast<std::uint32_t>(b),
                                           static_cast<std::uint32_t>(b >> 32), mask.layer,
                                           mask.site}};
    const kernels::PhiloxWords draws = kernels::philox(counter, mask.key[0], mask.key[1]);
    for (std::size_t i = 0; i < kDrawn && b * kDrawn + i < n; ++i) {
      const Factor factor = draws.word[i] < threshold ? Factor{0} : kept;
      out[b * kDrawn + i] = multiplied(in[b * kDrawn + i], factor);
    }
  }
}

template <typename T, typename Factor>
void launch(const DeviceDropout& mask, std::size_t n, const void* in, void* out,
            cudaStream_t stream) {
  const std::size_t wanted = (n + kDrawn * kThreads - 1) / (kDrawn * kThreads);
  const auto grid = static_cast<unsigned>(wanted < kGridMax ? wanted : kGridMax);
  const auto threshold = static_cast<std::uint32_t>(mask.probability * 0x1.0p32);
  const auto kept = static_cast<Factor>(1.0 / (1.0 - mask.probability));
  dropout_kernel<T, Factor><<<grid, kThreads, 0, stream>>>(
      mask, threshold, kept, n, static_cast<const T*>(in), static_cast<T*>(out));
}

}  // namespace

const char* apply_dropout(const DeviceDropout& mask, DropoutType type, std::size_t n,
                          const void* in, void* out, void* stream) {
  if (n == 0) return nullptr;
  const auto native = static_cast<cudaStream_t>(stream);
  switch (type) {
    case DropoutType::kF32:
      launch<float, float>(mask, n, in, out, native);
      break;
    case DropoutType::kF64:
      launch<double, double>(mask, n, in, out, native);
      break;
    case DropoutType::kBF16:
      launch<__nv_bfloat16, float>(mask, n, in, out, native);
      break;
  }
  return kernels::cuda::launch_error();
}

}  // namespace swarmline::cuda
