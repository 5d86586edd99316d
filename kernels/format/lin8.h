// lin8: linear int8 with the largest magnitude of each block as its end. One byte an element.
//   Scale:   format/scale.h with top = 127.
//   Code:    y = x * inverse (fp32); q = y rounded to the nearest integer, ties to even, clamped to
//            [-127, 127], as two's complement. Stochastic: q = floor(y + u) by format/philox.h,
//            clamped likewise.
//   Value:   q * stored (fp32). Code -128 is never written and reads as -127.
#pragma once

#include <cstdint>

#include "kernels/format/philox.h"
#include "kernels/format/scale.h"

namespace swarmline::kernels {

inline constexpr float kLin8Top = 127.0F;
inline constexpr std::uint32_t kLin8LargestScale = largest_scale(127.0);

SWARMLINE_ELEMENT std::int8_t lin8_clamped(std::int32_t q) {
  return static_cast<std::int8_t>(q < -127 ? -127 : (q > 127 ? 127 : q));
}
SWARMLINE_ELEMENT std::int8_t lin8_code(float value, float inverse) {
  // Adding 1.5 * 2^23 leaves the nearest even integer in the low bits.
  const float y = value * inverse;
  return lin8_clamped(static_cast<std::int32_t>(bits_of(y + 12582912.0F) - 0x4B400000U));
}
SWARMLINE_ELEMENT std::int8_t lin8_code_stochastic(float value, float inverse, std::uint32_t draw) {
  return lin8_clamped(floor_with_draw(value * inverse, draw));
}
SWARMLINE_ELEMENT float lin8_value(std::int8_t code, float stored) {
  return static_cast<float>(code < -127 ? -127 : code) * stored;
}

}  // namespace swarmline::kernels
