// Sums of squares: the blocks' sums are summed as the blocks were until one is left.

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/sum_body.cuh"
#include "kernels/cuda/team_launch.cuh"

namespace swarmline::kernels::cuda {
namespace {

template <typename Term, typename T>
cudaError_t sum_blocks(const T* values, std::uint64_t n, double* sums, cudaStream_t stream) {
  const std::uint64_t turns = (sum_blocks_of(n) + kTeamWarps - 1) / kTeamWarps;
  // Not by their names: nvcc hands those on in an old spelling where they are a template's.
  return launch_turns<SumBody<Term, T>>({values, n, sums}, turns, kTeamThreads, stream);
}

template <typename T>
cudaError_t sum(const T* values, std::size_t n, double* workspace, double* result,
                cudaStream_t stream) {
  if (n == 0) return cudaMemsetAsync(result, 0, sizeof(double), stream);
  std::size_t count = sum_blocks_of(n);
  double* sums = count == 1 ? result : workspace;
  cudaError_t status = sum_blocks<Square>(values, n, sums, stream);
  while (status == cudaSuccess && count > 1) {
    double* const terms = sums;
    sums = sum_blocks_of(count) == 1 ? result : terms + count;
    status = sum_blocks<Same>(terms, count, sums, stream);
    count = sum_blocks_of(count);
  }
  return status;
}

}  // namespace

std::size_t sum_of_squares_workspace(std::size_t n) {
  std::size_t doubles = 0;
  for (std::size_t count = sum_blocks_of(n); count > 1; count = sum_blocks_of(count))
    doubles += count;
  return doubles;
}
cudaError_t sum_of_squares(const float* values, std::size_t n, double* workspace, double* result,
                           cudaStream_t stream) {
  return sum(values, n, workspace, result, stream);
}
cudaError_t sum_of_squares(const double* values, std::size_t n, double* workspace, double* result,
                           cudaStream_t stream) {
  return sum(values, n, workspace, result, stream);
}

}  // namespace swarmline::kernels::cuda
