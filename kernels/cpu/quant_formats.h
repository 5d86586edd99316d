// lin8 and the two maps of dyn8 as the plain loops of quant_scalar.h want them.
#pragma once

#include <cstdint>

#include "kernels/cpu/quant_scalar.h"
#include "kernels/format/dyn8.h"
#include "kernels/format/lin8.h"

namespace swarmline::kernels {
namespace {

struct Lin8 {
  static constexpr float kTop = kLin8Top;
  static constexpr std::uint32_t kLargestScale = kLin8LargestScale;
  static constexpr std::uint8_t kZeroCode = 0;
  static std::uint8_t code(float x, float inverse) {
    return static_cast<std::uint8_t>(lin8_code(x, inverse));
  }
  static std::uint8_t code(float x, float inverse, std::uint32_t draw) {
    return static_cast<std::uint8_t>(lin8_code_stochastic(x, inverse, draw));
  }
  static float value(std::uint8_t code, float stored) {
    return lin8_value(static_cast<std::int8_t>(code), stored);
  }
};

template <bool kSigned>
struct Dyn8 {
  static constexpr float kTop = kDyn8Top;
  static constexpr std::uint32_t kLargestScale = kDyn8LargestScale;
  static constexpr std::uint8_t kZeroCode = kSigned ? kDyn8SignedZero : kDyn8UnsignedZero;
  static std::uint8_t code(float x, float inverse) {
    return kSigned ? dyn8_signed_code(x, inverse) : dyn8_unsigned_code(x, inverse);
  }
  // quantize.cc lets no key through for this format.
  static std::uint8_t code(float x, float inverse, std::uint32_t) { return code(x, inverse); }
  static float value(std::uint8_t code, float stored) {
    return (kSigned ? kDyn8SignedCodebook : kDyn8UnsignedCodebook).value[code] * stored;
  }
};

}  // namespace
}  // namespace swarmline::kernels
