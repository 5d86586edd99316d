// The masks of dropout.h on a CUDA device: the same elements are kept, the same factor.
//   Shapes: n elements, in == out is allowed. Thread: enqueued on `stream`. C++20, for nvcc.
#pragma once

#include <cstddef>
#include <cstdint>

namespace swarmline::cuda {

struct DeviceDropout {
  std::uint32_t key[2] = {};
  std::uint32_t layer = 0;
  std::uint32_t site = 0;
  double probability = 0;
};

enum class DropoutType : std::uint8_t { kF32, kF64, kBF16 };  // bf16: multiplied as fp32

// Null: launched; else what CUDA says.
const char* apply_dropout(const DeviceDropout& mask, DropoutType type, std::size_t n,
                          const void* in, void* out, void* stream);

}  // namespace swarmline::cuda
