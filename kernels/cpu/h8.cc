// CPU kernels of h8.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/h8.cc"
// clang-format off: what follows foreach_target.h is compiled once per target
#include <hwy/foreach_target.h>
#include "kernels/cpu/quant_dispatch.h"
#include "kernels/cpu/quant_vector.inc"
#include "kernels/cpu/quant_draws.inc"
#include "kernels/cpu/quant_linear.inc"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace swarmline::kernels::HWY_NAMESPACE {
namespace {

bool quantize_h8(const QuantSpec& spec, FloatKind source, const void* values, std::size_t n,
                 const StochasticKey* key, void* scales, std::uint8_t* codes) {
  return quantize_linear<H8Format>(spec, source, values, n, key, scales, codes);
}
bool dequantize_h8(const QuantSpec& spec, const void* scales, const std::uint8_t* codes,
                   std::size_t n, FloatKind target, void* values) {
  return dequantize_linear<H8Format>(spec, scales, codes, n, target, values);
}
bool axpy_h8(const QuantSpec& spec, float a, const void* scales, const std::uint8_t* codes,
             std::size_t n, float* y) {
  return axpy_linear<H8Format>(spec, a, scales, codes, n, y);
}

}  // namespace
}  // namespace swarmline::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace swarmline::kernels {
namespace {

SWARMLINE_QUANT_DISPATCH(h8);

}  // namespace

const QuantKernels kH8Kernels = kDispatched;

}  // namespace swarmline::kernels
#endif  // HWY_ONCE
