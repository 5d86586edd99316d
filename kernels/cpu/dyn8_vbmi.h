// Decoding dyn8 with AVX-512 VBMI, whose look-ups in 128 bytes find each byte of a value on its
// own. Arguments as in kernels/quantize.h; only where quant_path() says so.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quantize.h"

namespace swarmline::kernels::vbmi {

bool dequantize_dyn8(const QuantSpec& spec, const void* scales, const std::uint8_t* codes,
                     std::size_t n, FloatKind target, void* values);
bool axpy_dyn8(const QuantSpec& spec, float a, const void* scales, const std::uint8_t* codes,
               std::size_t n, float* y);

}  // namespace swarmline::kernels::vbmi
