// int4: a block of 32 elements shares a scale; two codes a byte. h4: the same after a rotation.
//   Scale:    format/scale.h with top = 7.
//   Code:     y = x * inverse (fp32); q = y rounded to the nearest integer, ties to even, clamped
//             to [-7, 7]. Stochastic: q = floor(y + u) by format/philox.h, clamped likewise.
//   Packing:  element 2i of a block in the low half of byte i, element 2i + 1 in the high half, as
//             two's complement of four bits. The high half after an odd last element is 0.
//   Value:    q * stored (fp32). The code -8 is never written and reads as -7.
//   h4:       a block is rotated first, as by h8 (format/h8.h) but with 32 elements, bits 0..4 and
//             2^-5, with its rule for NaN and infinity; a short last block is filled up with zeros
//             and keeps all its 16 bytes. Value: the 32 codes rotated (exact), then times stored,
//             limited like h8's.
#pragma once

#include <cstdint>

#include "kernels/format/h8.h"

namespace swarmline::kernels {

inline constexpr std::uint32_t kInt4Block = 32;
inline constexpr float kInt4Top = 7.0F;
inline constexpr std::uint32_t kInt4LargestScale = largest_scale(7.0);
inline constexpr float kH4Prescale = 0x1p-5F;

SWARMLINE_ELEMENT std::int32_t int4_clamped(std::int32_t q) {
  return q < -7 ? -7 : (q > 7 ? 7 : q);
}
SWARMLINE_ELEMENT std::int32_t int4_code(float value, float inverse) {
  const float y = value * inverse;  // then as in lin8_code()
  return int4_clamped(static_cast<std::int32_t>(bits_of(y + 12582912.0F) - 0x4B400000U));
}
SWARMLINE_ELEMENT std::int32_t int4_code_stochastic(float value, float inverse,
                                                    std::uint32_t draw) {
  return int4_clamped(floor_with_draw(value * inverse, draw));
}
SWARMLINE_ELEMENT std::uint8_t int4_pack(std::int32_t even, std::int32_t odd) {
  return static_cast<std::uint8_t>((static_cast<std::uint32_t>(even) & 15U) |
                                   ((static_cast<std::uint32_t>(odd) & 15U) << 4));
}
// The code in the low four bits.
SWARMLINE_ELEMENT std::int32_t int4_unpack(std::uint32_t nibble) {
  const std::int32_t code = static_cast<std::int32_t>((nibble & 15U) ^ 8U) - 8;
  return code < -7 ? -7 : code;
}

}  // namespace swarmline::kernels
