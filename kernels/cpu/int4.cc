// CPU kernels of int4 and h4.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/int4.cc"
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

bool quantize_int4(const QuantSpec& spec, FloatKind source, const void* values, std::size_t n,
                   const StochasticKey* key, void* scales, std::uint8_t* codes) {
  return spec.format == QuantFormat::kH4
             ? quantize_linear<H4Format>(spec, source, values, n, key, scales, codes)
             : quantize_linear<Int4Format>(spec, source, values, n, key, scales, codes);
}
bool dequantize_int4(const QuantSpec& spec, const void* scales, const std::uint8_t* codes,
                     std::size_t n, FloatKind target, void* values) {
  return spec.format == QuantFormat::kH4
             ? dequantize_linear<H4Format>(spec, scales, codes, n, target, values)
             : dequantize_linear<Int4Format>(spec, scales, codes, n, target, values);
}
bool axpy_int4(const QuantSpec& spec, float a, const void* scales, const std::uint8_t* codes,
               std::size_t n, float* y) {
  return spec.format == QuantFormat::kH4 ? axpy_linear<H4Format>(spec, a, scales, codes, n, y)
                                         : axpy_linear<Int4Format>(spec, a, scales, codes, n, y);
}

}  // namespace
}  // namespace swarmline::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace swarmline::kernels {
namespace {

SWARMLINE_QUANT_DISPATCH(int4);

}  // namespace

const QuantKernels kInt4Kernels = kDispatched;
const QuantKernels kH4Kernels = kDispatched;

}  // namespace swarmline::kernels
#endif  // HWY_ONCE
