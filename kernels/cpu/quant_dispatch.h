// From one format's kernels of every target to the functions of its QuantKernels. For the files
// that foreach_target.h compiles once per target, in their HWY_ONCE part.
#pragma once

#include <hwy/highway.h>

#include "kernels/cpu/quant_kernels.h"

// Defines <operation>_dispatched() for quantize_<name>, dequantize_<name> and axpy_<name>. A macro,
// because HWY_EXPORT and HWY_DYNAMIC_DISPATCH make names from names.
#define SWARMLINE_QUANT_DISPATCH(name)                                                             \
  HWY_EXPORT(quantize_##name);                                                                     \
  HWY_EXPORT(dequantize_##name);                                                                   \
  HWY_EXPORT(axpy_##name);                                                                         \
  bool quantize_dispatched(const QuantSpec& spec, FloatKind source, const void* values,            \
                           std::size_t n, const StochasticKey* key, void* scales,                  \
                           std::uint8_t* codes) {                                                  \
    return HWY_DYNAMIC_DISPATCH(quantize_##name)(spec, source, values, n, key, scales, codes);     \
  }                                                                                                \
  bool dequantize_dispatched(const QuantSpec& spec, const void* scales, const std::uint8_t* codes, \
                             std::size_t n, FloatKind target, void* values) {                      \
    return HWY_DYNAMIC_DISPATCH(dequantize_##name)(spec, scales, codes, n, target, values);        \
  }                                                                                                \
  bool axpy_dispatched(const QuantSpec& spec, float a, const void* scales,                         \
                       const std::uint8_t* codes, std::size_t n, float* y) {                       \
    return HWY_DYNAMIC_DISPATCH(axpy_##name)(spec, a, scales, codes, n, y);                        \
  }                                                                                                \
  constexpr QuantKernels kDispatched = {.quantize = quantize_dispatched,                           \
                                        .dequantize = dequantize_dispatched,                       \
                                        .dequantize_axpy = axpy_dispatched}
