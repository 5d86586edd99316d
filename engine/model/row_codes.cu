// One block of threads a row: the largest magnitude, then the codes; the row's second read comes
// from the cache.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "engine/model/row_codes.h"
#include "engine/model/row_element.h"
#include "kernels/cuda/device_state.h"

namespace swarmline::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarp = 32;
constexpr unsigned kWarps = kThreads / kWarp;
constexpr std::size_t kGridMax = 1U << 16;

__device__ float widened(float x) {
  return x;
}
__device__ float widened(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

// The largest of a block's values, to all of its threads. `shared` may be used again after the
// next barrier.
__device__ std::uint32_t block_max(std::uint32_t value, std::uint32_t* shared) {
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
    value = max(value, __shfl_xor_sync(0xFFFFFFFFU, value, step));
  }
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  for (unsigned warp = 0; warp < kWarps; ++warp) value = max(value, shared[warp]);
  return value;
}

template <typename Format, typename T>
__global__ void quantize_rows_kernel(const T* __restrict__ x, std::size_t rows, std::size_t width,
                                     std::uint8_t* __restrict__ codes, float* __restrict__ scales) {
  __shared__ std::uint32_t shared[kWarps];
  for (std::size_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const from = x + row * width;
    std::uint8_t* const to = codes + row * width;
    std::uint32_t absmax = 0;
    for (std::size_t i = threadIdx.x; i < width; i += kThreads) {
      absmax = max(absmax, kernels::magnitude_of(widened(from[i])));
    }
    const float scale = Format::stored(block_max(absmax, shared));
    if (threadIdx.x == 0) scales[row] = scale;
    const bool has_codes = row_format::has_codes(scale);
    const float inverse = has_codes ? 1.0F / scale : 0.0F;
    for (std::size_t i = threadIdx.x; i < width; i += kThreads) {
      to[i] = has_codes ? Format::code(widened(from[i]), inverse) : std::uint8_t{0};
    }
    __syncthreads();
  }
}

template <typename Format>
void launch(const void* x, RowType type, std::size_t rows, std::size_t width, std::uint8_t* codes,
            float* scales, cudaStream_t stream) {
  const auto grid = static_cast<unsigned>(rows < kGridMax ? rows : kGridMax);
  if (type == RowType::kF32) {
    quantize_rows_kernel<Format>
        <<<grid, kThreads, 0, stream>>>(static_cast<const float*>(x), rows, width, codes, scales);
  } else {
    quantize_rows_kernel<Format><<<grid, kThreads, 0, stream>>>(
        static_cast<const __nv_bfloat16*>(x), rows, width, codes, scales);
  }
}

}  // namespace

const char* quantize_rows(RowFormat format, const void* x, RowType type, std::size_t rows,
                          std::size_t width, std::uint8_t* codes, float* scales, void* stream) {
  if (rows == 0) return nullptr;
  const auto native = static_cast<cudaStream_t>(stream);
  row_format::visit(
      format, [&](auto of) { launch<decltype(of)>(x, type, rows, width, codes, scales, native); });
  return kernels::cuda::launch_error();
}

}  // namespace swarmline::cuda
