// Optimizer steps of a whole stage on a CUDA device: one launch for all tensors with fp32 state and
// one for all with 8-bit state (LAMB: one more of each for the norms, and one for the rates). The
// bits are those of kernels/optimizer.h.
//   Shapes:    the plan's arrays and the arenas lie in device memory; arenas and state start on
//              16-byte boundaries, and so do the plan's offsets into them (but for scales: 4).
//   Stream:    everything is queued on `stream`; nothing is allocated and nothing waits.
//   Errors:    the first launch's that fails.
//   Bounds:    2^31 - 1 chunks.
#pragma once

#include <cuda_runtime.h>

#include "kernels/optimizer.h"
#include "kernels/optimizer_plan.h"

namespace swarmline::kernels::cuda {

struct OptimizerPlan {
  const OptimizerChunk* chunks = nullptr;  // those with fp32 state first
  std::uint32_t chunks_fp32 = 0;
  std::uint32_t chunks_8bit = 0;
  const OptimizerTensor* tensors = nullptr;  // LAMB only
  std::uint32_t tensor_count = 0;
};

// `decayed` for tensors with weight decay, `plain` for those without.
cudaError_t step_adamw(const AdamwStep<float>& decayed, const AdamwStep<float>& plain,
                       const OptimizerPlan& plan, const OptimizerArenas& arenas,
                       cudaStream_t stream);

// What step_lamb works in (device): two sums a chunk, one rate a tensor.
struct LambWorkspace {
  double* sums = nullptr;
  float* rates = nullptr;
};
cudaError_t step_lamb(const LambStep<float>& decayed, const LambStep<float>& plain,
                      double learning_rate, const OptimizerPlan& plan,
                      const OptimizerArenas& arenas, const LambWorkspace& workspace,
                      cudaStream_t stream);

}  // namespace swarmline::kernels::cuda
