// 8-bit optimizer state: both moments of a tensor at one byte an element and one fp32 scale per
// kMomentBlock elements each, 2.03 bytes a parameter.
//   Moments:   m in the signed, v in the unsigned map of format/dyn8.h, fp32 scales; blocks start
//              at the tensor's first element. All zero bytes are a state of zeros.
//   Step:      both are decoded, moved in fp32 as optimizer.h says, used by the update as they are,
//              and then coded again with the scales of the new values, to nearest.
//   Floor:     a v above 0 never gets the code of 0 (unless the block's scale is 0): its code is at
//              least 1. Else a small m over a v of 0 would be divided by eps alone.
//   Error:     half a gap of the map at most. A step that changes a value by less than that leaves
//              its code, so that after a large gradient v falls with the block's scale only.
//   Not finite: a gradient that is NaN or infinite, or whose square overflows, makes the scale of
//              its block NaN, and with it every parameter of the block in the next step: never
//              silently a number. A NaN or infinite one makes its own parameter NaN at once. (The
//              engine skips a step whose reduced gradient is not finite, so that none comes here.)
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/format/dyn8.h"
#include "kernels/optimizer_element.h"

namespace swarmline::kernels {

// Value of a code; `stored` is its block's scale, `value` the codebook's.
SWARMLINE_ELEMENT float moment_value(float value, float stored) {
  return scale_is_bad(stored, kDyn8LargestScale) ? float_of(kFloatNan) : value * stored;
}
SWARMLINE_ELEMENT float moment_scale(std::uint32_t absmax_bits) {
  return stored_scale(absmax_bits, kDyn8Top, kDyn8LargestScale, ScaleKind::kF32);
}
// Codes of a block whose scale is above 0, inverse = 1 / scale. Otherwise: moment_code_of_none.
SWARMLINE_ELEMENT std::uint8_t first_moment_code(float m, float inverse) {
  return dyn8_signed_code(m, inverse);
}
SWARMLINE_ELEMENT std::uint8_t second_moment_code(float v, float inverse) {
  const std::uint8_t code = dyn8_unsigned_code(v, inverse);
  return code == 0 && v > 0 ? std::uint8_t{1} : code;
}
// Code of every element where the scale is 0 or NaN.
SWARMLINE_ELEMENT std::uint8_t moment_code_of_none(float stored, std::uint8_t zero_code) {
  return stored == 0 ? zero_code : std::uint8_t{0};
}

}  // namespace swarmline::kernels
