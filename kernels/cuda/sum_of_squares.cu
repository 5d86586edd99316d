// Sums of squares in the order of kernels.h: one warp sums one block of kSumBlock terms, its lanes
// are the lanes of that order. The blocks' sums are summed the same way until one is left.

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/launch.cuh"

namespace swarmline::kernels::cuda {
namespace {

constexpr unsigned kAllLanes = 0xFFFFFFFF;
static_assert(kSumLanes == kWarp, "a warp is one set of lanes");

struct Square {
  template <typename T>
  __device__ double operator()(T value) const {
    const double wide = static_cast<double>(value);
    return wide * wide;
  }
};
struct Same {
  __device__ double operator()(double value) const { return value; }
};

template <typename Term, typename T>
__global__ void sum_blocks_kernel(const T* __restrict__ values, std::size_t n,
                                  double* __restrict__ sums) {
  const std::size_t blocks = (n + kSumBlock - 1) / kSumBlock;
  for (std::size_t b = first_warp(); b < blocks; b += warp_stride()) {
    const std::size_t begin = b * kSumBlock;
    const std::size_t end = begin + kSumBlock < n ? begin + kSumBlock : n;
    double sum = 0;
    for (std::size_t i = begin + lane(); i < end; i += kWarp) sum += Term{}(values[i]);
    for (unsigned width = kWarp / 2; width > 0; width /= 2) {
      sum += __shfl_down_sync(kAllLanes, sum, width);
    }
    if (lane() == 0) sums[b] = sum;
  }
}

std::size_t blocks_of(std::size_t n) {
  return (n + kSumBlock - 1) / kSumBlock;
}

template <typename Term, typename T>
cudaError_t sum_blocks(const T* values, std::size_t n, double* sums, cudaStream_t stream) {
  sum_blocks_kernel<Term>
      <<<grid_for(blocks_of(n), kWarpsPerBlock), kThreads, 0, stream>>>(values, n, sums);
  return cudaGetLastError();
}

template <typename T>
cudaError_t sum(const T* values, std::size_t n, double* workspace, double* result,
                cudaStream_t stream) {
  if (n == 0) return cudaMemsetAsync(result, 0, sizeof(double), stream);
  std::size_t count = blocks_of(n);
  double* sums = count == 1 ? result : workspace;
  cudaError_t status = sum_blocks<Square>(values, n, sums, stream);
  while (status == cudaSuccess && count > 1) {
    double* const terms = sums;
    sums = blocks_of(count) == 1 ? result : terms + count;
    status = sum_blocks<Same>(terms, count, sums, stream);
    count = blocks_of(count);
  }
  return status;
}

}  // namespace

std::size_t sum_of_squares_workspace(std::size_t n) {
  std::size_t doubles = 0;
  for (std::size_t count = blocks_of(n); count > 1; count = blocks_of(count)) doubles += count;
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
