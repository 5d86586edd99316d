// Values of fp32 or bf16 in a row, read and written 16 bytes at a time where rows begin at that
// boundary, computed with in fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_bf16.h>

namespace swarmline::cuda {

inline constexpr std::size_t kRunBytes = 16;

__device__ inline float widened(float x) {
  return x;
}
__device__ inline float widened(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ inline void narrow(float x, float& to) {
  to = x;
}
__device__ inline void narrow(float x, __nv_bfloat16& to) {
  to = __float2bfloat16_rn(x);
}

template <typename T, unsigned kCount>
struct alignas(sizeof(T) * kCount) Run {
  T values[kCount];
};

// by_count<T, kCount>(): kCount values a run, one where rows of `width` values, or what begins at
// one of the places, do not lie at that boundary.
template <typename T, typename ByCount>
void by_run(std::size_t width, std::uintptr_t places, ByCount&& by_count) {
  constexpr unsigned kPerRun = kRunBytes / sizeof(T);
  if (width % kPerRun == 0 && places % kRunBytes == 0) {
    by_count.template operator()<T, kPerRun>();
  } else {
    by_count.template operator()<T, 1>();
  }
}
inline std::uintptr_t place_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

}  // namespace swarmline::cuda
