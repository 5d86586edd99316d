// What a codec's relative error is made of, summed on the device: (decoded - value)^2 and value^2
// in double, as compression/measure.h says. The order of the sums is CUB's, not the host's: a
// statistic, near the host's to the last few bits. NaN and infinities come through.
//   Shapes:    device pointers, naturally aligned; n floats each, n >= 0.
//   Stream:    everything is queued on `stream`; nothing is allocated and nothing waits.
//   Errors:    the launch's cudaError_t.
#pragma once

#include <cstddef>
#include <cuda_runtime.h>

namespace swarmline::kernels::cuda {

struct ErrorSums {
  double squared_error;
  double squared_norm;
};

// Bytes of device memory that error_sums of n elements works in, to `bytes`; never 0.
cudaError_t error_sums_workspace(std::size_t n, std::size_t& bytes);
// `workspace`: that many bytes, at a 256-byte boundary. Writes the sums to `result` (device).
cudaError_t error_sums(const float* values, const float* decoded, std::size_t n, void* workspace,
                       std::size_t workspace_bytes, ErrorSums* result, cudaStream_t stream);

}  // namespace swarmline::kernels::cuda
