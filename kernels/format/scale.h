// The scale of a block, as all formats of kernels/quantize.h store and read it.
//   absmax:   integer maximum of (bits & 0x7FFFFFFF) over the block, elements widened to fp32. Bits
//             of magnitudes order like the numbers with infinity and NaN above all, so the maximum
//             depends on no order and finds what is not finite.
//   Stored:   absmax bits >= 0x7F800000: NaN (0x7FC00000, as bf16 0x7FC0), all codes 0.
//             absmax < 2^-100: +0, all codes the one that decodes to 0.
//             Else absmax / top, top being the format's largest code value: one fp32 division; as
//             bf16 rounded up; then the smaller of that and the largest scale (as bf16: its upper
//             16 bits) whose product with top is finite in fp32.
//   Codes:    are made from inverse = 1 / stored (fp32), so that writer and reader agree on what
//             was stored. x * inverse may pass top by a little, by more where the largest scale was
//             taken: every format clamps.
//   Reading:  a scale whose bits, as unsigned, are above those of the largest scale is bad: NaN,
//             infinite, negative (-0 too) or too large. Its block comes back as NaN (0x7FC00000).
#pragma once

#include <cstdint>

#include "kernels/element.h"
#include "kernels/quantize.h"

namespace swarmline::kernels {

inline constexpr std::uint32_t kTinyAbsmax = 0x0D800000;  // 2^-100

// Bits of the largest float whose product with `top` >= 1, rounded to fp32, is finite.
constexpr std::uint32_t largest_scale(double top) {
  constexpr double kOverflows = 0x1.FFFFFFp127;  // halfway from the largest float to 2^128
  auto bits = __builtin_bit_cast(std::uint32_t, static_cast<float>(0x1.FFFFFEp127 / top));
  while (__builtin_bit_cast(float, bits + 1) * top < kOverflows) ++bits;
  while (__builtin_bit_cast(float, bits) * top >= kOverflows) --bits;
  return bits < kFloatInfinity ? bits : kFloatInfinity - 1;
}

SWARMLINE_ELEMENT std::uint32_t magnitude_of(float value) {
  return bits_of(value) & kFloatMagnitude;
}

// What is stored for absmax / top.
SWARMLINE_ELEMENT float scale_of_quotient(float quotient, std::uint32_t largest_bits,
                                          ScaleKind kind) {
  const bool narrow = kind == ScaleKind::kBf16;
  const std::uint32_t exact = bits_of(quotient);
  const std::uint32_t rounded = narrow ? (exact + 0xFFFFU) & 0xFFFF0000U : exact;
  const std::uint32_t largest = narrow ? largest_bits & 0xFFFF0000U : largest_bits;
  return float_of(rounded < largest ? rounded : largest);
}
// What is stored for a block; the value of a bf16 scale, whose upper 16 bits are written.
SWARMLINE_ELEMENT float stored_scale(std::uint32_t absmax_bits, float top,
                                     std::uint32_t largest_bits, ScaleKind kind) {
  if (absmax_bits >= kFloatInfinity) return float_of(kFloatNan);
  if (absmax_bits < kTinyAbsmax) return 0.0F;
  return scale_of_quotient(float_of(absmax_bits) / top, largest_bits, kind);
}
SWARMLINE_ELEMENT bool scale_is_bad(float stored, std::uint32_t largest_bits) {
  return bits_of(stored) > largest_bits;
}

}  // namespace swarmline::kernels
