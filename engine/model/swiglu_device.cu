#include <cuda_runtime.h>

#include "engine/model/device_runs.cuh"
#include "engine/model/swiglu.h"
#include "engine/model/swiglu_device.h"
#include "kernels/cuda/device_state.h"

namespace swarmline::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kGridMax = 1U << 16;

// Where a run of a row's values, of its gates and of its ups are, in runs.
struct RunPlace {
  std::size_t value;
  std::size_t gate;
  std::size_t up;
};
__device__ RunPlace place_in(std::size_t run, std::size_t runs_of_row) {
  const std::size_t row = run / runs_of_row;
  const std::size_t gate = run + row * runs_of_row;
  return {.value = run, .gate = gate, .up = gate + runs_of_row};
}

template <typename T, unsigned kCount>
__global__ void swiglu_kernel(SwiGluRows rows, T* y) {
  const auto* const from = static_cast<const Run<T, kCount>*>(rows.x);
  auto* const to = reinterpret_cast<Run<T, kCount>*>(y);
  const std::size_t of_row = rows.width / kCount;
  const std::size_t stride = std::size_t{gridDim.x} * kThreads;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < rows.rows * of_row;
       i += stride) {
    const RunPlace place = place_in(i, of_row);
    const Run<T, kCount> gate = from[place.gate], up = from[place.up];
    Run<T, kCount> made;
#pragma unroll
    for (unsigned j = 0; j < kCount; ++j)
      narrow(swiglu_of(widened(gate.values[j]), widened(up.values[j])), made.values[j]);
    to[place.value] = made;
  }
}

template <typename T, unsigned kCount>
__global__ void swiglu_gradient_kernel(SwiGluRows rows, const T* g, T* dx) {
  const auto* const from = static_cast<const Run<T, kCount>*>(rows.x);
  const auto* const given = reinterpret_cast<const Run<T, kCount>*>(g);
  auto* const to = reinterpret_cast<Run<T, kCount>*>(dx);
  const std::size_t of_row = rows.width / kCount;
  const std::size_t stride = std::size_t{gridDim.x} * kThreads;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < rows.rows * of_row;
       i += stride) {
    const RunPlace place = place_in(i, of_row);
    const Run<T, kCount> gate = from[place.gate], up = from[place.up], out = given[place.value];
    Run<T, kCount> of_gate, of_up;
#pragma unroll
    for (unsigned j = 0; j < kCount; ++j) {
      const SwiGluGradient made = swiglu_gradient_of(widened(gate.values[j]), widened(up.values[j]),
                                                     widened(out.values[j]));
      narrow(made.gate, of_gate.values[j]);
      narrow(made.up, of_up.values[j]);
    }
    to[place.gate] = of_gate;
    to[place.up] = of_up;
  }
}

template <typename T, typename Launch>
const char* launch(const SwiGluRows& rows, const void* given, const void* made, Launch&& by_count) {
  by_run<T>(rows.width, place_of(rows.x) | place_of(given) | place_of(made),
            [&]<typename U, unsigned kCount>() {
              const std::size_t runs = rows.rows * (rows.width / kCount);
              const std::size_t blocks = (runs + kThreads - 1) / kThreads;
              by_count.template operator()<U, kCount>(
                  static_cast<unsigned>(blocks < kGridMax ? blocks : kGridMax));
            });
  return kernels::cuda::launch_error();
}

}  // namespace

const char* swiglu(const SwiGluRows& rows, void* y, void* stream) {
  if (rows.rows == 0 || rows.width == 0) return nullptr;
  const auto by_count = [&]<typename T, unsigned kCount>(unsigned grid) {
    swiglu_kernel<T, kCount>
        <<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(rows, static_cast<T*>(y));
  };
  return rows.type == SwiGluType::kF32 ? launch<float>(rows, nullptr, y, by_count)
                                       : launch<__nv_bfloat16>(rows, nullptr, y, by_count);
}

const char* swiglu_gradient(const SwiGluRows& rows, const void* g, void* dx, void* stream) {
  if (rows.rows == 0 || rows.width == 0) return nullptr;
  const auto by_count = [&]<typename T, unsigned kCount>(unsigned grid) {
    swiglu_gradient_kernel<T, kCount><<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        rows, static_cast<const T*>(g), static_cast<T*>(dx));
  };
  return rows.type == SwiGluType::kF32 ? launch<float>(rows, g, dx, by_count)
                                       : launch<__nv_bfloat16>(rows, g, dx, by_count);
}

}  // namespace swarmline::cuda
