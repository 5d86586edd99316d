#include <cub/device/device_reduce.cuh>
#include <thrust/iterator/counting_iterator.h>

#include "kernels/cuda/error_sums.cuh"

namespace swarmline::kernels::cuda {
namespace {

struct ErrorAt {
  const float* values;
  const float* decoded;
  __device__ ErrorSums operator()(std::size_t i) const {
    const double x = values[i];
    const double d = decoded[i] - x;
    return {d * d, x * x};
  }
};
struct Plus {
  __device__ ErrorSums operator()(const ErrorSums& a, const ErrorSums& b) const {
    return {a.squared_error + b.squared_error, a.squared_norm + b.squared_norm};
  }
};

// Without a workspace: sets `workspace_bytes` to what it needs.
cudaError_t reduce(const float* values, const float* decoded, std::size_t n, void* workspace,
                   std::size_t& workspace_bytes, ErrorSums* result, cudaStream_t stream) {
  return cub::DeviceReduce::TransformReduce(workspace, workspace_bytes,
                                            thrust::counting_iterator<std::size_t>(0), result, n,
                                            Plus{}, ErrorAt{values, decoded}, ErrorSums{}, stream);
}

}  // namespace

cudaError_t error_sums_workspace(std::size_t n, std::size_t& bytes) {
  return reduce(nullptr, nullptr, n, nullptr, bytes, nullptr, nullptr);
}
cudaError_t error_sums(const float* values, const float* decoded, std::size_t n, void* workspace,
                       std::size_t workspace_bytes, ErrorSums* result, cudaStream_t stream) {
  return reduce(values, decoded, n, workspace, workspace_bytes, result, stream);
}

}  // namespace swarmline::kernels::cuda
