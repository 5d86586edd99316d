// What the CPU kernels of a format offer quantize.cc, arguments as in kernels/quantize.h and
// already checked. Each picks its instruction set itself (kernels/cpu/quant_path.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quantize.h"

namespace swarmline::kernels {

struct QuantKernels {
  bool (*quantize)(const QuantSpec& spec, FloatKind source, const void* values, std::size_t n,
                   const StochasticKey* key, void* scales, std::uint8_t* codes);
  bool (*dequantize)(const QuantSpec& spec, const void* scales, const std::uint8_t* codes,
                     std::size_t n, FloatKind target, void* values);
  // Null where fusing brings nothing: quantize.cc then composes the two above, piece by piece.
  bool (*dequantize_axpy)(const QuantSpec& spec, float a, const void* scales,
                          const std::uint8_t* codes, std::size_t n, float* y) = nullptr;
  bool (*mean_requantize)(const QuantSpec& spec, const QuantPart* parts, std::size_t parts_count,
                          float factor, std::size_t n, const StochasticKey* key, void* scales,
                          std::uint8_t* codes) = nullptr;
  bool (*quantize_with_feedback)(const QuantSpec& spec, const float* values, float* residual,
                                 std::size_t n, const StochasticKey* key, void* scales,
                                 std::uint8_t* codes) = nullptr;
};

extern const QuantKernels kLin8Kernels;
extern const QuantKernels kDyn8Kernels;  // both maps
extern const QuantKernels kH8Kernels;
extern const QuantKernels kE4M3Kernels;
extern const QuantKernels kE5M2Kernels;
extern const QuantKernels kInt4Kernels;
extern const QuantKernels kH4Kernels;

}  // namespace swarmline::kernels
