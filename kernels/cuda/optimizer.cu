// Launches of the bodies in optimizer_body.cuh and lamb_body.cuh, one team a chunk.

#include "kernels/cuda/lamb_body.cuh"
#include "kernels/cuda/optimizer.cuh"
#include "kernels/cuda/team_launch.cuh"

namespace swarmline::kernels::cuda {
namespace {

// At least, of one multiprocessor: enough loads under way at once, and registers enough to spill
// none.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kTeamsPerUnit = 3;
#else
constexpr int kTeamsPerUnit = 4;
#endif

// Everything but the decay is the same for all tensors, and stays a constant of the launch.
__device__ AdamwStep<float> step_of(const OptimizerChunk& chunk, const AdamwStep<float>& decayed,
                                    const AdamwStep<float>& plain) {
  return {.moments = decayed.moments,
          .keep = chunk.decay != 0 ? decayed.keep : plain.keep,
          .rate = decayed.rate};
}
__device__ LambStep<float> step_of(const OptimizerChunk& chunk, const LambStep<float>& decayed,
                                   const LambStep<float>& plain) {
  return {.moments = decayed.moments, .decay = chunk.decay != 0 ? decayed.decay : plain.decay};
}

__global__ void __launch_bounds__(kTeamThreads)
    adamw32_kernel(AdamwStep<float> decayed, AdamwStep<float> plain, const OptimizerChunk* chunks,
                   OptimizerArenas arenas) {
  const OptimizerChunk chunk = chunks[blockIdx.x];
  adamw32_body(Team(), ChunkView(chunk, arenas), AdamwRule{step_of(chunk, decayed, plain)});
}

__global__ void __launch_bounds__(kTeamThreads, kTeamsPerUnit)
    adamw8_kernel(AdamwStep<float> decayed, AdamwStep<float> plain, const OptimizerChunk* chunks,
                  OptimizerArenas arenas) {
  __shared__ MomentTables tables;
  const OptimizerChunk chunk = chunks[blockIdx.x];
  step8_body(Team(), ChunkView(chunk, arenas), AdamwRule{step_of(chunk, decayed, plain)}, tables);
}

__global__ void __launch_bounds__(kTeamThreads)
    lamb_norms32_kernel(LambStep<float> decayed, LambStep<float> plain,
                        const OptimizerChunk* chunks, OptimizerArenas arenas, double* sums) {
  __shared__ NormShared shared;
  const OptimizerChunk chunk = chunks[blockIdx.x];
  lamb_norms_body(Team(), ChunkView(chunk, arenas), step_of(chunk, decayed, plain), nullptr, shared,
                  sums + 2 * std::size_t{blockIdx.x});
}

__global__ void __launch_bounds__(kTeamThreads)
    lamb_norms8_kernel(LambStep<float> decayed, LambStep<float> plain, const OptimizerChunk* chunks,
                       OptimizerArenas arenas, double* sums) {
  __shared__ NormShared shared;
  __shared__ MomentCodebooks codebooks;
  const OptimizerChunk chunk = chunks[blockIdx.x];
  lamb_norms_body(Team(), ChunkView(chunk, arenas), step_of(chunk, decayed, plain), &codebooks,
                  shared, sums + 2 * std::size_t{blockIdx.x});
}

__global__ void __launch_bounds__(kTeamWarp)
    lamb_rates_kernel(const OptimizerTensor* tensors, const double* sums, double learning_rate,
                      float* rates) {
  lamb_rate_body(Team(), tensors[blockIdx.x], sums, learning_rate, rates + blockIdx.x);
}

__global__ void __launch_bounds__(kTeamThreads)
    lamb32_kernel(LambStep<float> decayed, LambStep<float> plain, const OptimizerChunk* chunks,
                  OptimizerArenas arenas, const float* rates) {
  const OptimizerChunk chunk = chunks[blockIdx.x];
  lamb32_body(Team(), ChunkView(chunk, arenas), step_of(chunk, decayed, plain),
              rates[chunk.tensor]);
}

__global__ void __launch_bounds__(kTeamThreads, kTeamsPerUnit)
    lamb8_kernel(LambStep<float> decayed, LambStep<float> plain, const OptimizerChunk* chunks,
                 OptimizerArenas arenas, const float* rates) {
  __shared__ MomentTables tables;
  const OptimizerChunk chunk = chunks[blockIdx.x];
  step8_body(Team(), ChunkView(chunk, arenas),
             LambRule{step_of(chunk, decayed, plain), rates[chunk.tensor]}, tables);
}

}  // namespace

cudaError_t step_adamw(const AdamwStep<float>& decayed, const AdamwStep<float>& plain,
                       const OptimizerPlan& plan, const OptimizerArenas& arenas,
                       cudaStream_t stream) {
  const OptimizerChunk* const coded = plan.chunks + plan.chunks_fp32;
  const cudaError_t status = launch(adamw32_kernel, plan.chunks_fp32, kTeamThreads, stream, decayed,
                                    plain, plan.chunks, arenas);
  if (status != cudaSuccess) return status;
  return launch(adamw8_kernel, plan.chunks_8bit, kTeamThreads, stream, decayed, plain, coded,
                arenas);
}

cudaError_t step_lamb(const LambStep<float>& decayed, const LambStep<float>& plain,
                      double learning_rate, const OptimizerPlan& plan,
                      const OptimizerArenas& arenas, const LambWorkspace& workspace,
                      cudaStream_t stream) {
  const OptimizerChunk* const coded = plan.chunks + plan.chunks_fp32;
  double* const coded_sums = workspace.sums + 2 * std::size_t{plan.chunks_fp32};
  cudaError_t status = launch(lamb_norms32_kernel, plan.chunks_fp32, kTeamThreads, stream, decayed,
                              plain, plan.chunks, arenas, workspace.sums);
  if (status == cudaSuccess)
    status = launch(lamb_norms8_kernel, plan.chunks_8bit, kTeamThreads, stream, decayed, plain,
                    coded, arenas, coded_sums);
  if (status == cudaSuccess)
    status = launch(lamb_rates_kernel, plan.tensor_count, kTeamWarp, stream, plan.tensors,
                    workspace.sums, learning_rate, workspace.rates);
  if (status == cudaSuccess)
    status = launch(lamb32_kernel, plan.chunks_fp32, kTeamThreads, stream, decayed, plain,
                    plan.chunks, arenas, workspace.rates);
  if (status == cudaSuccess)
    status = launch(lamb8_kernel, plan.chunks_8bit, kTeamThreads, stream, decayed, plain, coded,
                    arenas, workspace.rates);
  return status;
}

}  // namespace swarmline::kernels::cuda
