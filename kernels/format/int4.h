// int4: a block of 32 elements shares a scale; two codes a byte. h4: the same after a rotation.
//   Scale:    stored = absmax / 7, by the rules of format/scale.h.
//   Code:     q = x * (1 / stored) rounded to the nearest integer, ties to even, in [-7, 7]; or
//             rounded stochastically (format/philox.h). 0 throughout a block of scale 0 or NaN.
//   Packing:  element 2i of a block in the low half of byte i, element 2i + 1 in the high half, as
//             two's complement of four bits. The high half after an odd last element is 0.
//   Value:    q * stored. The code -8 is never written and reads as -7.
//   h4:       a block is rotated first, as by h8 (format/h8.h) but with 32 elements, bits 0..4 and
//             2^-5, with its rule for NaN and infinity; a short last block is filled up with zeros
//             and keeps all its 16 bytes. Value: the 32 codes rotated (exact), then times stored,
//             limited like h8's.
#pragma once

#include <cstdint>

#include "kernels/element.h"
#include "kernels/format/h8.h"

namespace swarmline::kernels {

inline constexpr std::uint32_t kInt4Block = 32;
inline constexpr float kInt4Levels = 7.0F;
inline constexpr std::int32_t kInt4CodeMax = 7;
inline constexpr float kH4Prescale = 0x1p-5F;

// `y` = x * (1 / stored), so |y| < 7.001: rounding gives at most 7.
SWARMLINE_ELEMENT std::int32_t int4_code(float y) {
  return static_cast<std::int32_t>(bits_of(y + 12582912.0F) - 0x4B400000U);
}
SWARMLINE_ELEMENT std::uint8_t int4_pack(std::int32_t even, std::int32_t odd) {
  return static_cast<std::uint8_t>((static_cast<std::uint32_t>(even) & 15U) |
                                   ((static_cast<std::uint32_t>(odd) & 15U) << 4));
}
// The code in the low four bits.
SWARMLINE_ELEMENT std::int32_t int4_unpack(std::uint32_t nibble) {
  const std::int32_t code = static_cast<std::int32_t>((nibble & 15U) ^ 8U) - 8;
  return code < -kInt4CodeMax ? -kInt4CodeMax : code;
}

}  // namespace swarmline::kernels
