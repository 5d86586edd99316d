// CUDA twins of kernels/quantize.h: the same scales and codes bit for bit; values too, but for the
// payload of a NaN that a sum made.
//   Shapes:    device pointers, aligned for their type (codes: any address; 16 bytes are fastest).
//              n and all indices are 64 bits wide. Buffers do not overlap, unless quantize.h lets
//              them. `key` is read on the host, before the call returns.
//   Stream:    one launch on `stream`; nothing is allocated and nothing waits. Fit for capture in a
//              graph.
//   Errors:    the launch's cudaError_t; cudaErrorInvalidValue for a spec that is not valid, for
//              stochastic rounding of a format that has none.
//   Non-finite: `non_finite` (device, may be null) is set to 1 where the CPU function would return
//              true, else left alone.
//   Build:     with --fmad=false and without fast math.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>

#include "kernels/quantize.h"

namespace swarmline::kernels::cuda {

cudaError_t quantize(const QuantSpec& spec, FloatKind source, const void* values, std::size_t n,
                     const StochasticKey* key, void* scales, std::uint8_t* codes,
                     std::uint32_t* non_finite, cudaStream_t stream);
cudaError_t dequantize(const QuantSpec& spec, const void* scales, const std::uint8_t* codes,
                       std::size_t n, FloatKind target, void* values, std::uint32_t* non_finite,
                       cudaStream_t stream);

// Straight into and out of the tiles of a wire buffer (compression/codec.h), whose first tile lies
// at `tiles`, aligned to 64 bytes: scales and codes of all tiles in one launch. Header, gaps and
// checksums are the host's: compression's seal_wire() after the copy.
cudaError_t quantize_wire(const QuantSpec& spec, FloatKind source, const void* values,
                          std::size_t n, const StochasticKey* key, void* tiles,
                          std::uint32_t* non_finite, cudaStream_t stream);
cudaError_t dequantize_wire(const QuantSpec& spec, const void* tiles, std::size_t n,
                            FloatKind target, void* values, std::uint32_t* non_finite,
                            cudaStream_t stream);
// quantize_with_feedback(), with the residual from `current` into `next`, which may be the same.
cudaError_t quantize_wire_with_feedback(const QuantSpec& spec, const float* values,
                                        const float* current, float* next, std::size_t n,
                                        const StochasticKey* key, void* tiles,
                                        std::uint32_t* non_finite, cudaStream_t stream);
std::size_t wire_tiles_bytes(const QuantSpec& spec, std::size_t n);

// Quantizes rows (tokens) normalised on the way: one pass over what a stage sends.
//   What:    of each row of `width` elements of x: RMSNorm y = (x * r) * weight with
//            r = 1 / sqrt(sum(x * x) / width + eps); LayerNorm with m = sum(x) / width:
//            c = x - m, r = 1 / sqrt(sum(c * c) / width + eps), y = (c * r) * weight + bias. Then
//            the codes of all y (rows after each other), to nearest.
//   Sums:    fp32, as one team of T = min(256, width / 16 rounded up to a multiple of 32) threads
//            sums them: each thread its elements of the chunks of 16 T, in order (thread t of a
//            chunk has the elements 512 (t / 32) + 32 V g + V (t % 32) + i, g and i ascending, V
//            elements being 16 bytes); then lanes by butterflies with masks 1, 2, 4, 8, 16; then
//            warps ascending.
//   Shapes:  width a multiple of the spec's block; weight and bias of `width` fp32 each (bias null
//            for RMSNorm). Formats lin8, h8, dyn8 and e4m3: what activations travel as.
enum class NormKind : std::uint8_t { kRms, kLayer };
struct Norm {
  NormKind kind = NormKind::kRms;
  float eps = 1e-5F;
  const float* weight = nullptr;
  const float* bias = nullptr;
};
cudaError_t normalize_quantize(const QuantSpec& spec, const Norm& norm, FloatKind source,
                               const void* values, std::size_t rows, std::size_t width,
                               void* scales, std::uint8_t* codes, std::uint32_t* non_finite,
                               cudaStream_t stream);

}  // namespace swarmline::kernels::cuda
