// CPU kernels of dyn8, both maps.

#include "kernels/format/dyn8.h"

#include "kernels/cpu/quant_kernels.h"
#include "kernels/cpu/quant_scalar.h"

namespace swarmline::kernels {
namespace {

template <bool kSigned>
struct Dyn8 {
  static constexpr float kTop = kDyn8Top;
  static constexpr std::uint32_t kLargestScale = kDyn8LargestScale;
  static constexpr std::uint8_t kZeroCode = kSigned ? kDyn8SignedZero : kDyn8UnsignedZero;
  static std::uint8_t code(float x, float inverse) {
    return kSigned ? dyn8_signed_code(x, inverse) : dyn8_unsigned_code(x, inverse);
  }
  // Never called: is_valid() of a key is can_round_stochastically().
  static std::uint8_t code(float x, float inverse, std::uint32_t) { return code(x, inverse); }
  static float value(std::uint8_t code, float stored) {
    return (kSigned ? kDyn8SignedCodebook : kDyn8UnsignedCodebook).value[code] * stored;
  }
};

bool quantize_dyn8(const QuantSpec& spec, FloatKind source, const void* values, std::size_t n,
                   const StochasticKey* key, void* scales, std::uint8_t* codes) {
  const auto run = spec.format == QuantFormat::kDyn8 ? quantize_scalar<Dyn8<true>>
                                                     : quantize_scalar<Dyn8<false>>;
  return run(spec, source, values, n, key, scales, codes);
}
bool dequantize_dyn8(const QuantSpec& spec, const void* scales, const std::uint8_t* codes,
                     std::size_t n, FloatKind target, void* values) {
  const auto run = spec.format == QuantFormat::kDyn8 ? dequantize_scalar<Dyn8<true>>
                                                     : dequantize_scalar<Dyn8<false>>;
  return run(spec, scales, codes, n, target, values);
}

}  // namespace

const QuantKernels kDyn8Kernels = {.quantize = quantize_dyn8, .dequantize = dequantize_dyn8};

}  // namespace swarmline::kernels
