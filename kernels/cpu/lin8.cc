// CPU kernels of lin8.

#include "kernels/format/lin8.h"

#include "kernels/cpu/quant_kernels.h"
#include "kernels/cpu/quant_scalar.h"

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

}  // namespace

const QuantKernels kLin8Kernels = {
    .quantize = quantize_scalar<Lin8>,
    .dequantize = dequantize_scalar<Lin8>,
};

}  // namespace swarmline::kernels
