// CUDA twins of the CPU kernels: the same bits, except for the payload of a NaN that arithmetic
// made.
//   Shapes:    device pointers, naturally aligned for their type; n and all indices are 64 bits
//              wide. Buffers do not overlap, unless a function says otherwise.
//   Stream:    everything is queued on `stream`; nothing is allocated and nothing waits.
//   Errors:    the launch's cudaError_t. Errors of the running kernel come out of later calls, as
//              ever.
//   Build:     compiled with --fmad=false and without fast math: element.h relies on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>

#include "kernels/digest.h"
#include "kernels/kernels.h"
#include "kernels/quantize.h"

namespace swarmline::kernels::cuda {

// `non_finite` (device, may be null) is set to 1 when a non-finite value was written, else left
// alone.
cudaError_t bf16_to_fp32(const std::uint16_t* source, float* destination, std::size_t n,
                         std::uint32_t* non_finite, cudaStream_t stream);

// Codecs fp16 and bf16 (`code`: kF16 or kBf16) of fp32 or bf16 values, in a wire buffer's tiles
// (tiles.h), which are 64-byte aligned. The flag is set where a code is not finite.
cudaError_t narrow_wire(FloatKind code, FloatKind source, const void* values, std::size_t n,
                        void* tiles, std::uint32_t* non_finite, cudaStream_t stream);
cudaError_t widen_wire(FloatKind code, const void* tiles, std::size_t n, FloatKind target,
                       void* values, std::uint32_t* non_finite, cudaStream_t stream);

// sum = a + b; `sum` may be one of them.
cudaError_t add(const float* a, const float* b, float* sum, std::size_t n, cudaStream_t stream);
// lost = values - decoded, 0 where that is not finite; `lost` may be one of them.
cudaError_t lost_values(const float* values, const float* decoded, float* lost, std::size_t n,
                        cudaStream_t stream);

// Doubles of device memory that sum_of_squares of n elements works in.
std::size_t sum_of_squares_workspace(std::size_t n);
// Writes the sum to `result` (device).
cudaError_t sum_of_squares(const float* values, std::size_t n, double* workspace, double* result,
                           cudaStream_t stream);
cudaError_t sum_of_squares(const double* values, std::size_t n, double* workspace, double* result,
                           cudaStream_t stream);

// Words of device memory that the digest of so many bytes works in.
std::size_t digest_workspace(std::uint64_t bytes);
// Writes kernels::digest() to `result` (device).
cudaError_t digest(const void* data, std::uint64_t bytes, std::uint64_t* workspace,
                   std::uint64_t* result, cudaStream_t stream);

}  // namespace swarmline::kernels::cuda
