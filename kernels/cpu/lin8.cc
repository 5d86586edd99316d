// CPU kernels of lin8.

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/lin8.cc"
#include <hwy/foreach_target.h>
#include "kernels/cpu/quant_formats.h"
#include "kernels/cpu/quant_dispatch.h"
#include "kernels/cpu/quant_vector.inc"
#include "kernels/cpu/quant_draws.inc"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace swarmline::kernels::HWY_NAMESPACE {
namespace {
#if SWARMLINE_WIDE

struct Lin8Vector {
  using Plain = Lin8;

  template <FloatKind kSource, bool kStream>
  static HWY_INLINE void encode(const std::uint8_t* values, std::size_t block, float inverse,
                                std::uint8_t* codes) {
    const F32 factor = hn::Set(df32, inverse);
    const I8 least = hn::Set(di8, -127);
    for (std::size_t i = 0; i < block; i += kGroup) {
      fetch_ahead<kSource>(values, i);
      const I32 q0 = nearest_int(hn::Mul(load_values<kSource>(values, i), factor));
      const I32 q1 = nearest_int(hn::Mul(load_values<kSource>(values, i + kLanes), factor));
      const I32 q2 = nearest_int(hn::Mul(load_values<kSource>(values, i + 2 * kLanes), factor));
      const I32 q3 = nearest_int(hn::Mul(load_values<kSource>(values, i + 3 * kLanes), factor));
      const I8 bytes =
          narrow_to_i8(hn::ReorderDemote2To(di16, q0, q1), hn::ReorderDemote2To(di16, q2, q3));
      store_codes<kStream>(in_element_order(hn::Max(bytes, least)), codes + i);
    }
  }

  // Elements first .. first + 63 of the call, which `values` and `codes` point at.
  template <FloatKind kSource>
  static HWY_INLINE void encode_64(const std::uint8_t* values, std::uint64_t first, F32 factor,
                                   const StochasticKey& key, std::uint8_t* codes) {
    alignas(64) std::uint16_t draws[64];
    fill_draws(key, first, 64, draws);
    const I8 least = hn::Set(di8, -127);
    for (std::size_t i = 0; i < 64; i += kGroup) {
      I32 q[4];
      for (std::size_t j = 0; j < 4; ++j) {
        const std::size_t at = i + j * kLanes;
        const F32 y = hn::Mul(load_values<kSource>(values, at), factor);
        q[j] = nearest_int(floor_with_draws(y, draws + at));
      }
      const I8 bytes = narrow_to_i8(hn::ReorderDemote2To(di16, q[0], q[1]),
                                    hn::ReorderDemote2To(di16, q[2], q[3]));
      store_codes<false>(in_element_order(hn::Max(bytes, least)), codes + i);
    }
  }

  static HWY_INLINE F32 value(const std::uint8_t* codes, F32 scale) {
    constexpr hn::Rebind<std::int8_t, decltype(di32)> kBytes;
    const auto q = hn::LoadU(kBytes, reinterpret_cast<const std::int8_t*>(codes));
    const auto read = hn::Max(q, hn::Set(kBytes, -127));
    return hn::Mul(hn::ConvertTo(df32, hn::PromoteTo(di32, read)), scale);
  }
  template <FloatKind kTarget, Sink kSink>
  static HWY_INLINE void decode(const std::uint8_t* codes, std::size_t block, float stored, float a,
                                std::uint8_t* values) {
    const F32 scale = hn::Set(df32, stored);
    const F32 factor = hn::Set(df32, a);
    for (std::size_t i = 0; i < block; i += kGroup) {
      put<kTarget, kSink>(value(codes + i, scale), value(codes + i + kLanes, scale),
                          value(codes + i + 2 * kLanes, scale),
                          value(codes + i + 3 * kLanes, scale), values, i, factor);
    }
  }
};

template <FloatKind kSource>
bool quantize_randomly(const QuantSpec& spec, const void* from, std::size_t n,
                       const StochasticKey& key, void* scales, std::uint8_t* codes) {
  const auto* values = static_cast<const std::uint8_t*>(from);
  const std::size_t block = spec.block;
  bool bad = false;
  for (std::size_t begin = 0, b = 0; begin < n; begin += block, ++b) {
    if (n - begin < block) {
      bad |= quantize_block<Lin8>(spec, kSource, from, b, n - begin, &key, scales, codes);
      break;
    }
    const std::uint8_t* x = values + begin * bytes_of(kSource);
    const float stored =
        stored_scale(absmax_bits<kSource>(x, block), kLin8Top, kLin8LargestScale, spec.scales);
    store_scale(spec.scales, scales, b, stored);
    bad |= not_finite(stored);
    if (!(stored > 0)) {
      __builtin_memset(codes + begin, 0, block);
      continue;
    }
    const F32 factor = hn::Set(df32, 1.0F / stored);
    for (std::size_t i = 0; i < block; i += 64) {
      Lin8Vector::encode_64<kSource>(x + i * bytes_of(kSource), begin + i, factor, key,
                                     codes + begin + i);
    }
  }
  return bad;
}

#endif  // SWARMLINE_WIDE

bool quantize_lin8(const QuantSpec& spec, FloatKind source, const void* values, std::size_t n,
                   const StochasticKey* key, void* scales, std::uint8_t* codes) {
#if SWARMLINE_WIDE
  if (key != nullptr) {
    const auto run = source == FloatKind::kF32   ? quantize_randomly<FloatKind::kF32>
                     : source == FloatKind::kF16 ? quantize_randomly<FloatKind::kF16>
                                                 : quantize_randomly<FloatKind::kBf16>;
    return run(spec, values, n, *key, scales, codes);
  }
  return quantize_vector<Lin8Vector>(spec, source, values, n, scales, codes);
#else
  return quantize_scalar<Lin8>(spec, source, values, n, key, scales, codes);
#endif
}
bool dequantize_lin8(const QuantSpec& spec, const void* scales, const std::uint8_t* codes,
                     std::size_t n, FloatKind target, void* values) {
#if SWARMLINE_WIDE
  return dequantize_vector<Lin8Vector>(spec, scales, codes, n, target, values);
#else
  return dequantize_scalar<Lin8>(spec, scales, codes, n, target, values);
#endif
}
bool axpy_lin8(const QuantSpec& spec, float a, const void* scales, const std::uint8_t* codes,
               std::size_t n, float* y) {
#if SWARMLINE_WIDE
  return axpy_vector<Lin8Vector>(spec, a, scales, codes, n, y);
#else
  return axpy_scalar<Lin8>(spec, a, scales, codes, n, y);
#endif
}

}  // namespace
}  // namespace swarmline::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace swarmline::kernels {
namespace {

SWARMLINE_QUANT_DISPATCH(lin8);

}  // namespace

const QuantKernels kLin8Kernels = kDispatched;

}  // namespace swarmline::kernels
#endif  // HWY_ONCE
