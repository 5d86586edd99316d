// h8: a block of 64 elements is rotated by a Hadamard matrix, which spreads an outlier over the
// whole block, and the rotated block is coded as lin8 (format/lin8.h).
//   Rotation: v[i] = x[i] * 2^-6, then for bit = 0, 1, .., 5, for every i without that bit and
//             j = i + 2^bit: (v[i], v[j]) = (v[i] + v[j], v[i] - v[j]). Each product, sum and
//             difference is rounded to fp32 on its own. With 2^-6 no finite block overflows.
//   Short:    a last block of fewer elements is filled up with zeros; all its 64 codes are kept.
//   Scale:    NaN with codes 0 if an x of the block is NaN or infinite (before the rotation);
//             otherwise lin8's scale and codes of v. Stochastic rounding counts positions of v.
//   Value:    the codes, read as lin8 reads them, rotated by the same butterflies without the 2^-6,
//             which is exact (integers of at most 64 * 127), then times stored (fp32); beyond the
//             largest float the value is the largest float of that sign, so that what was finite
//             stays so. A bad scale (format/scale.h, of lin8) makes every value NaN.
#pragma once

#include <cstdint>

#include "kernels/format/lin8.h"

namespace swarmline::kernels {

inline constexpr std::uint32_t kH8Block = 64;
inline constexpr float kH8Prescale = 0x1p-6F;
inline constexpr float kLargestFloat = 0x1.fffffep127F;

// In place, unnormalised; kSize is a power of two.
template <std::uint32_t kSize, typename T>
SWARMLINE_ELEMENT void hadamard(T* v) {
  for (std::uint32_t half = 1; half < kSize; half *= 2) {
    for (std::uint32_t i = 0; i < kSize; ++i) {
      if ((i & half) != 0) continue;
      const T a = v[i];
      const T b = v[i + half];
      v[i] = a + b;
      v[i + half] = a - b;
    }
  }
}

// `sum` of rotated codes. The product of a finite scale is no NaN.
SWARMLINE_ELEMENT float rotated_value(float sum, float stored) {
  const float value = sum * stored;
  const float low = value < -kLargestFloat ? -kLargestFloat : value;
  return low > kLargestFloat ? kLargestFloat : low;
}

}  // namespace swarmline::kernels
