// How the optimizer's CUDA kernels find their work in a stage's flat arenas: a list of chunks, made
// once, that lies in device memory. One launch covers all tensors of a kind.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace swarmline::kernels {

inline constexpr std::size_t kOptimizerChunk = kSumBlock;  // elements; the last of a tensor: fewer

struct OptimizerChunk {
  std::uint64_t element = 0;    // first one in the arenas of gradients and parameters
  std::uint64_t values_at = 0;  // bytes into each moment's state: fp32 values, or 8-bit codes
  std::uint64_t scales_at = 0;  // bytes; 8-bit: the scale of the chunk's first block
  std::uint32_t tensor = 0;
  std::uint16_t count = 0;  // elements
  std::uint16_t decay = 0;  // 1: weight decay applies
};

// Chunks [first_chunk, first_chunk + chunks) are a tensor's, in order.
struct OptimizerTensor {
  std::uint32_t first_chunk = 0;
  std::uint32_t chunks = 0;  // at most kOptimizerTensorChunksMax
};
inline constexpr std::uint32_t kOptimizerTensorChunksMax = kSumBlock * kSumLanes;

// What chunks point into, in device memory.
struct OptimizerArenas {
  const float* gradients = nullptr;
  float* parameters = nullptr;
  std::byte* m = nullptr;  // state of the first moment, of the second
  std::byte* v = nullptr;
};

}  // namespace swarmline::kernels
