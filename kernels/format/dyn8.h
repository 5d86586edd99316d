// dyn8: the dynamic map of Dettmers ("8-bit approximations for parallelism in deep learning") as
// bitsandbytes and hivemind use it: seven decades of magnitude, each with twice the codes of the
// one below. One byte an element; codes and scales are what bitsandbytes' blockwise decoder takes.
//   Scale:     format/scale.h with top = 1: the largest magnitude itself.
//   Values:    codebook[code] * stored (fp32); codebooks in format/dyn8_codebook.h. Signed: code
//              127 + k is magnitude k in 0..128 (0 is zero, 128 is 1.0), code 127 - k its negative;
//              there is no -1.0. Unsigned: code k in 0..255 is magnitude k, 0 is zero, 255 is 1.0.
//   Code:      a = |x * inverse| (unsigned: x * inverse, 0 if it is not above 0); decade d = how
//              many of threshold[1..8] are <= a; f = a * slope[d] + offset[d], product and sum each
//              rounded to fp32; j = integer part of the smaller of f and top[d].
//              Signed: k = j, code = x < 0 ? 127 - k : 127 + k, but 0 where that is -1.
//              Unsigned: code = j - 1.
//   Constants: threshold[d] is halfway between the codebook's values on its sides (sum in fp32,
//              then halved); with s = 10^(d - 7) and n = 2^(d - 1) codes in decade d (unsigned
//              2^d), 1 <= d <= 7: slope = n / (0.9 s), offset = n * 8 / 9, top = 2 n - 1. So j is
//              the nearest code's, but for values within 1e-6 (relative) of halfway between two.
//              (The signed map's first decade has the one code 1: slope 0, offset 1.)
//   Negative elements of the unsigned map count in its absmax and are coded as 0.
#pragma once

#include <cstdint>

#include "kernels/format/dyn8_codebook.h"
#include "kernels/format/scale.h"

namespace swarmline::kernels {

inline constexpr float kDyn8Top = 1.0F;
inline constexpr std::uint32_t kDyn8LargestScale = largest_scale(1.0);
inline constexpr std::uint8_t kDyn8SignedZero = 127;
inline constexpr std::uint8_t kDyn8UnsignedZero = 0;
inline constexpr int kDyn8Decades = 9;  // with "below all" and "1.0"

struct Dyn8Map {
  float threshold[kDyn8Decades];
  float slope[kDyn8Decades];
  float offset[kDyn8Decades];
  float top[kDyn8Decades];
};
inline constexpr Dyn8Map kDyn8SignedMap = {
    .threshold = {0, 2.75000019e-07F, 1.90000014e-06F, 1.44999995e-05F, 0.000122500001F,
                  0.00111249997F, 0.0105625F, 0.102812499F, 0.996484399F},
    .slope = {0, 0, 222222.219F, 44444.4453F, 8888.88867F, 1777.77783F, 355.555542F, 71.1111145F,
              0},
    .offset = {0, 1, 1.77777779F, 3.55555558F, 7.11111116F, 14.2222223F, 28.4444447F, 56.8888893F,
               128},
    .top = {0, 1, 3, 7, 15, 31, 63, 127, 128},
};
inline constexpr Dyn8Map kDyn8UnsignedMap = {
    .threshold = {0, 1.62500015e-07F, 1.4499999e-06F, 1.22499987e-05F, 0.000111250003F,
                  0.00105624995F, 0.0102812499F, 0.101406246F, 0.998242199F},
    .slope = {0, 2222222.25F, 444444.438F, 88888.8906F, 17777.7773F, 3555.55566F, 711.111084F,
              142.222229F, 0},
    .offset = {1, 1.77777779F, 3.55555558F, 7.11111116F, 14.2222223F, 28.4444447F, 56.8888893F,
               113.777779F, 256},
    .top = {1, 3, 7, 15, 31, 63, 127, 255, 256},
};

struct Dyn8Line {
  float slope;
  float offset;
  float top;
};
template <bool kSigned, int kDecade>
SWARMLINE_ELEMENT void dyn8_line_of_decade(float a, Dyn8Line& line) {
  constexpr Dyn8Map kMap = kSigned ? kDyn8SignedMap : kDyn8UnsignedMap;
  constexpr float kThreshold = kMap.threshold[kDecade];
  constexpr float kSlope = kMap.slope[kDecade];
  constexpr float kOffset = kMap.offset[kDecade];
  constexpr float kTop = kMap.top[kDecade];
  if (a >= kThreshold) line = {kSlope, kOffset, kTop};
}
template <bool kSigned>
SWARMLINE_ELEMENT std::int32_t dyn8_step(float a) {
  Dyn8Line line = {};
  dyn8_line_of_decade<kSigned, 0>(a, line);
  dyn8_line_of_decade<kSigned, 1>(a, line);
  dyn8_line_of_decade<kSigned, 2>(a, line);
  dyn8_line_of_decade<kSigned, 3>(a, line);
  dyn8_line_of_decade<kSigned, 4>(a, line);
  dyn8_line_of_decade<kSigned, 5>(a, line);
  dyn8_line_of_decade<kSigned, 6>(a, line);
  dyn8_line_of_decade<kSigned, 7>(a, line);
  dyn8_line_of_decade<kSigned, 8>(a, line);
  const float product = a * line.slope;
  const float f = product + line.offset;
  return static_cast<std::int32_t>(f < line.top ? f : line.top);
}

SWARMLINE_ELEMENT std::uint8_t dyn8_signed_code(float value, float inverse) {
  const float y = value * inverse;
  const std::int32_t k = dyn8_step<true>(float_of(magnitude_of(y)));
  const std::int32_t code = y < 0 ? 127 - k : 127 + k;
  return static_cast<std::uint8_t>(code < 0 ? 0 : code);
}
SWARMLINE_ELEMENT std::uint8_t dyn8_unsigned_code(float value, float inverse) {
  const float y = value * inverse;
  return static_cast<std::uint8_t>(dyn8_step<false>(y > 0 ? y : 0.0F) - 1);
}

}  // namespace swarmline::kernels
