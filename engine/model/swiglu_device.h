// SwiGLU of rows on a CUDA device and its gradient, each in one pass (swiglu.h).
//   Shapes:  x and dx (rows, 2 width), gate before up; y and g (rows, width); row-major.
//   Dtypes:  fp32 or bf16, computed in fp32.
//   Thread:  enqueued on `stream`, pointers to device memory that do not overlap. C++20, for nvcc.
//   Errors:  null: launched; else what CUDA says.
#pragma once

#include <cstddef>
#include <cstdint>

namespace swarmline::cuda {

enum class SwiGluType : std::uint8_t { kF32, kBF16 };

struct SwiGluRows {
  SwiGluType type = SwiGluType::kBF16;
  std::size_t rows = 0;
  std::size_t width = 0;
  const void* x = nullptr;
};
const char* swiglu(const SwiGluRows& rows, void* y, void* stream);
const char* swiglu_gradient(const SwiGluRows& rows, const void* g, void* dx, void* stream);

}  // namespace swarmline::cuda
