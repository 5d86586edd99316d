// fp8: a block of 128 elements shares a scale, a code is an 8-bit float of the scaled element.
//   e4m3:    sign, 4 bits of exponent (bias 7), 3 of mantissa; largest 448 (0x7E); 0x7F is NaN,
//            there is no infinity (OCP "e4m3fn").
//   e5m2:    sign, 5 bits of exponent (bias 15), 2 of mantissa; largest 57344 (0x7B); 0x7C is
//            infinity, 0x7D..0x7F are NaN.
//   Scale:   format/scale.h with top = the largest.
//   Code:    x * inverse (fp32) rounded to the nearest code, ties to the even one, subnormal codes
//            included; magnitudes above the largest become the largest. Zero keeps its sign. NaN
//            and infinity are never written. In a block of scale 0 or NaN all codes are 0.
//   Value:   the code's number * stored (fp32). A NaN or infinity on the wire reads as NaN
//            (0x7FC00000), and its block counts as one that is not finite.
#pragma once

#include <cstdint>

#include "kernels/format/scale.h"

namespace swarmline::kernels {

inline constexpr std::uint32_t kFp8Block = 128;

// What distinguishes the two, as shifts and bits of the fp32 they are rounded from.
struct E4M3 {
  static constexpr std::uint32_t kShift = 20;        // of fp32's mantissa, to fp8's
  static constexpr std::uint32_t kRebias = 127 - 7;  // fp32's bias less fp8's
  static constexpr std::uint32_t kLargestCode = 0x7E;
  static constexpr std::uint32_t kFirstBadCode = 0x7F;  // magnitudes from here are NaN or infinity
  static constexpr float kTop = 448.0F;
  static constexpr std::uint32_t kLargestScale = largest_scale(448.0);
};
struct E5M2 {
  static constexpr std::uint32_t kShift = 21;
  static constexpr std::uint32_t kRebias = 127 - 15;
  static constexpr std::uint32_t kLargestCode = 0x7B;
  static constexpr std::uint32_t kFirstBadCode = 0x7C;
  static constexpr float kTop = 57344.0F;
  static constexpr std::uint32_t kLargestScale = largest_scale(57344.0);
};

// `y` is no NaN. As for halves (element.h): both branches are computed and one is picked, and an
// adder rounds the subnormal codes, beside a number whose last place is the smallest of them.
template <typename F>
SWARMLINE_ELEMENT std::uint8_t fp8_code(float y) {
  constexpr std::uint32_t kSmallestNormal = (F::kRebias + 1) << 23;
  constexpr std::uint32_t kSubnormalMagic = (F::kRebias + 1 + F::kShift) << 23;
  const std::uint32_t bits = bits_of(y);
  const std::uint32_t magnitude = bits & kFloatMagnitude;
  const std::uint32_t odd = (magnitude >> F::kShift) & 1U;
  const std::uint32_t half = (1U << (F::kShift - 1)) - 1U;
  const std::uint32_t normal =
      ((magnitude + half + odd) >> F::kShift) - (F::kRebias << (23 - F::kShift));
  const std::uint32_t subnormal =
      bits_of(float_of(magnitude) + float_of(kSubnormalMagic)) - kSubnormalMagic;
  std::uint32_t code = magnitude < kSmallestNormal ? subnormal : normal;
  code = code > F::kLargestCode ? F::kLargestCode : code;
  return static_cast<std::uint8_t>(code | ((bits >> 24) & 0x80U));
}

template <typename F>
SWARMLINE_ELEMENT bool fp8_is_bad(std::uint8_t code) {
  return (code & 0x7FU) >= F::kFirstBadCode;
}
template <typename F>
SWARMLINE_ELEMENT float fp8_number(std::uint8_t code) {
  constexpr std::uint32_t kOne = 1U << 23;
  const std::uint32_t sign = (code & 0x80U) << 24;
  const std::uint32_t magnitude = (code & 0x7FU) << F::kShift;
  const std::uint32_t normal = magnitude + F::kRebias * kOne;
  const std::uint32_t subnormal =
      bits_of(float_of(magnitude + (F::kRebias + 1) * kOne) - float_of((F::kRebias + 1) * kOne));
  std::uint32_t bits = magnitude < kOne ? subnormal : normal;
  bits = fp8_is_bad<F>(code) ? kFloatNan : bits | sign;
  return float_of(bits);
}
// NaN keeps its bits, which a product need not.
template <typename F>
SWARMLINE_ELEMENT float fp8_value(std::uint8_t code, float stored) {
  return fp8_is_bad<F>(code) ? float_of(kFloatNan) : fp8_number<F>(code) * stored;
}

}  // namespace swarmline::kernels
