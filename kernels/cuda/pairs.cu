// Sums and what codecs lose, element by element.

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/pairs_body.cuh"
#include "kernels/cuda/team_launch.cuh"

namespace swarmline::kernels::cuda {
namespace {

template <typename Of>
cudaError_t launch_pairs(const PairsArgs& args, cudaStream_t stream) {
  if (args.n == 0) return cudaSuccess;
  return launch_turns<PairsBody<Of>>(args, pairs_turns(args), kTeamThreads, stream);
}

}  // namespace

cudaError_t add(const float* a, const float* b, float* sum, std::size_t n, cudaStream_t stream) {
  return launch_pairs<Sum>({.a = a, .b = b, .out = sum, .n = n}, stream);
}
cudaError_t lost_values(const float* values, const float* decoded, float* lost, std::size_t n,
                        cudaStream_t stream) {
  return launch_pairs<Lost>({.a = values, .b = decoded, .out = lost, .n = n}, stream);
}

}  // namespace swarmline::kernels::cuda
