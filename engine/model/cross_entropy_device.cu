// One block of threads a row. A thread reads 16 bytes at a time where rows begin at that boundary.
#include <cuda_runtime.h>

#include "engine/model/cross_entropy_device.h"
#include "engine/model/device_runs.cuh"
#include "engine/model/log_sum.h"
#include "kernels/cuda/device_state.h"

namespace swarmline::cuda {
namespace {

constexpr unsigned kThreads = 512;
constexpr unsigned kWarp = 32;
constexpr unsigned kWarps = kThreads / kWarp;
constexpr unsigned kAllLanes = 0xFFFFFFFFU;
constexpr std::size_t kGridMax = 1U << 16;

template <typename T, unsigned kCount>
__device__ LogSum sum_of_part(const Run<T, kCount>* row, std::size_t runs) {
  LogSum sum;
  for (std::size_t i = threadIdx.x; i < runs; i += kThreads) {
    const Run<T, kCount> run = row[i];
    float largest = widened(run.values[0]);
#pragma unroll
    for (unsigned j = 1; j < kCount; ++j) largest = fmaxf(largest, widened(run.values[j]));
    if (largest == -INFINITY) continue;
    LogSum part{largest, 0};
#pragma unroll
    for (unsigned j = 0; j < kCount; ++j) part.sum += expf(widened(run.values[j]) - largest);
    sum = merged(sum, part);
  }
  return sum;
}

// Of all threads' parts; in thread 0.
__device__ LogSum sum_of_block(LogSum sum, LogSum* shared) {
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
    const LogSum other{__shfl_down_sync(kAllLanes, sum.largest, step),
                       __shfl_down_sync(kAllLanes, sum.sum, step)};
    sum = merged(sum, other);
  }
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x == 0)
    for (unsigned warp = 1; warp < kWarps; ++warp) sum = merged(sum, shared[warp]);
  __syncthreads();
  return sum;
}

template <typename T, unsigned kCount>
__global__ void loss_kernel(CrossEntropyRows rows, double* losses) {
  __shared__ LogSum shared[kWarps];
  for (std::size_t row = blockIdx.x; row < rows.rows; row += gridDim.x) {
    const T* const logits = static_cast<const T*>(rows.logits) + row * rows.width;
    const LogSum sum = sum_of_block(
        sum_of_part(reinterpret_cast<const Run<T, kCount>*>(logits), rows.width / kCount), shared);
    if (threadIdx.x != 0) continue;
    const std::int32_t target = rows.targets[row];
    const float log_sum = value_of(sum);
    rows.log_sums[row] = log_sum;
    losses[row] = target < 0 ? 0.0 : static_cast<double>(log_sum - widened(logits[target]));
  }
}

template <typename T, unsigned kCount>
__global__ void gradient_kernel(CrossEntropyRows rows, const double* factor, T* gradient) {
  const float scale = static_cast<float>(*factor);
  for (std::size_t row = blockIdx.x; row < rows.rows; row += gridDim.x) {
    const std::size_t begin = row * rows.width;
    const auto* const from =
        reinterpret_cast<const Run<T, kCount>*>(static_cast<const T*>(rows.logits) + begin);
    auto* const to = reinterpret_cast<Run<T, kCount>*>(gradient + begin);
    const std::int32_t target = rows.targets[row];
    const float log_sum = rows.log_sums[row];
    for (std::size_t i = threadIdx.x; i < rows.width / kCount; i += kThreads) {
      const Run<T, kCount> run = from[i];
      Run<T, kCount> made;
#pragma unroll
      for (unsigned j = 0; j < kCount; ++j) {
        const auto column = static_cast<std::int32_t>(i * kCount + j);
        const float own = column == target ? 1.0F : 0.0F;
        const float value = scale * (expf(widened(run.values[j]) - log_sum) - own);
        narrow(target < 0 ? 0.0F : value, made.values[j]);
      }
      to[i] = made;
    }
  }
}

template <typename T, typename Launch>
const char* launch(const CrossEntropyRows& rows, const void* other, Launch&& by_count) {
  const auto grid = static_cast<unsigned>(rows.rows < kGridMax ? rows.rows : kGridMax);
  by_run<T>(rows.width, place_of(rows.logits) | place_of(other),
            [&]<typename U, unsigned kCount>() { by_count.template operator()<U, kCount>(grid); });
  return kernels::cuda::launch_error();
}

}  // namespace

const char* cross_entropy(const CrossEntropyRows& rows, double* losses, void* stream) {
  if (rows.rows == 0) return nullptr;
  const auto by_count = [&]<typename T, unsigned kCount>(unsigned grid) {
    loss_kernel<T, kCount><<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(rows, losses);
  };
  return rows.type == LogitsType::kF32 ? launch<float>(rows, nullptr, by_count)
                                       : launch<__nv_bfloat16>(rows, nullptr, by_count);
}

const char* cross_entropy_gradient(const CrossEntropyRows& rows, const double* factor,
                                   void* gradient, void* stream) {
  if (rows.rows == 0) return nullptr;
  const auto by_count = [&]<typename T, unsigned kCount>(unsigned grid) {
    gradient_kernel<T, kCount><<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        rows, factor, static_cast<T*>(gradient));
  };
  return rows.type == LogitsType::kF32 ? launch<float>(rows, gradient, by_count)
                                       : launch<__nv_bfloat16>(rows, gradient, by_count);
}

}  // namespace swarmline::cuda
