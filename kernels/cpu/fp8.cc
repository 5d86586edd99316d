// CPU kernels of both fp8 formats.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/fp8.cc"
// clang-format off: what follows foreach_target.h is compiled once per target
#include <hwy/foreach_target.h>
#include "kernels/cpu/quant_block.h"
#include "kernels/cpu/quant_dispatch.h"
#include "kernels/cpu/quant_vector.inc"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace swarmline::kernels::HWY_NAMESPACE {
namespace {
#if SWARMLINE_WIDE

// fp8_code() of format/fp8.h, as a signed byte in 32 bits.
template <typename Kind>
HWY_INLINE I32 fp8_codes(F32 y) {
  constexpr std::uint32_t kHalf = (1U << (Kind::kShift - 1)) - 1U;
  constexpr std::uint32_t kMagic = (Kind::kRebias + 1 + Kind::kShift) << 23;
  const I32 bits = hn::BitCast(di32, y);
  const I32 magnitude = hn::And(bits, hn::Set(di32, static_cast<std::int32_t>(kFloatMagnitude)));
  const I32 odd = hn::And(hn::ShiftRight<Kind::kShift>(magnitude), hn::Set(di32, 1));
  const I32 rounded = hn::Add(hn::Add(magnitude, hn::Set(di32, std::int32_t{kHalf})), odd);
  const I32 normal = hn::Sub(hn::ShiftRight<Kind::kShift>(rounded),
                             hn::Set(di32, std::int32_t{Kind::kRebias << (23 - Kind::kShift)}));
  const F32 beside = hn::BitCast(df32, hn::Set(di32, std::int32_t{kMagic}));
  const I32 subnormal = hn::Sub(hn::BitCast(di32, hn::Add(hn::BitCast(df32, magnitude), beside)),
                                hn::BitCast(di32, beside));
  const auto is_subnormal =
      hn::Lt(magnitude, hn::Set(di32, std::int32_t{(Kind::kRebias + 1) << 23}));
  const I32 code = hn::Min(hn::IfThenElse(is_subnormal, subnormal, normal),
                           hn::Set(di32, std::int32_t{Kind::kLargestCode}));
  return hn::Or(code, hn::ShiftLeft<7>(hn::ShiftRight<31>(bits)));
}

// fp8_number() of codes that are numbers, given as signed bytes in 32 bits.
template <typename Kind>
HWY_INLINE F32 fp8_numbers(I32 codes) {
  const I32 sign = hn::And(codes, hn::Set(di32, static_cast<std::int32_t>(~kFloatMagnitude)));
  const I32 magnitude = hn::ShiftLeft<Kind::kShift>(hn::And(codes, hn::Set(di32, 0x7F)));
  const I32 normal = hn::Add(magnitude, hn::Set(di32, std::int32_t{Kind::kRebias << 23}));
  const I32 first = hn::Set(di32, std::int32_t{(Kind::kRebias + 1) << 23});
  const F32 subnormal =
      hn::Sub(hn::BitCast(df32, hn::Add(magnitude, first)), hn::BitCast(df32, first));
  const auto is_subnormal = hn::Lt(magnitude, hn::Set(di32, 1 << 23));
  return hn::BitCast(
      df32, hn::Or(sign, hn::IfThenElse(is_subnormal, hn::BitCast(di32, subnormal), normal)));
}

template <typename Kind, FloatKind kSource, bool kStream>
HWY_INLINE void encode_fp8(const std::uint8_t* values, float inverse, std::uint8_t* codes) {
  const F32 factor = hn::Set(df32, inverse);
  for (std::size_t i = 0; i < kFp8Block; i += kGroup) {
    I32 q[4];
    for (std::size_t j = 0; j < 4; ++j) {
      q[j] = fp8_codes<Kind>(hn::Mul(load_values<kSource>(values, i + j * kLanes), factor));
    }
    const I8 bytes = narrow_to_i8(hn::ReorderDemote2To(di16, q[0], q[1]),
                                  hn::ReorderDemote2To(di16, q[2], q[3]));
    store_codes<kStream>(in_element_order(bytes), codes + i);
  }
}

template <typename Kind, FloatKind kSource, bool kStream>
bool quantize_whole(const QuantSpec& spec, const void* from, std::size_t blocks, void* scales,
                    std::uint8_t* codes) {
  const auto* values = static_cast<const std::uint8_t*>(from);
  bool bad = false;
  for (std::size_t b = 0; b < blocks; ++b) {
    const float stored = stored_scale(absmax_bits<kSource>(values, kFp8Block), Kind::kTop,
                                      Kind::kLargestScale, spec.scales);
    store_scale(spec.scales, scales, b, stored);
    if (HWY_LIKELY(stored > 0)) {
      encode_fp8<Kind, kSource, kStream>(values, 1.0F / stored, codes);
    } else {
      __builtin_memset(codes, 0, kFp8Block);
      bad |= not_finite(stored);
    }
    values += kFp8Block * bytes_of(kSource);
    codes += kFp8Block;
  }
  if constexpr (kStream) hwy::FlushStream();
  return bad;
}

template <typename Kind, FloatKind kSource>
bool fp8_from(const QuantSpec& spec, const void* from, std::size_t n, void* scales,
              std::uint8_t* codes) {
  const std::size_t whole = n / kFp8Block;
  bool bad = n >= kStreamingBytesMin && is_aligned(codes)
                 ? quantize_whole<Kind, kSource, true>(spec, from, whole, scales, codes)
                 : quantize_whole<Kind, kSource, false>(spec, from, whole, scales, codes);
  const std::size_t rest = n % kFp8Block;
  if (rest != 0) {
    bad |= quantize_one<Fp8Format<Kind>>(spec.scales, kSource, from, whole, rest, nullptr, scales,
                                         codes);
  }
  return bad;
}

// ---------------------------------------------------------------------------------------------

template <typename Kind, FloatKind kTarget, Sink kSink>
HWY_NOINLINE bool decode_fp8_unusual(ScaleKind kind, const void* scales, const std::uint8_t* codes,
                                     std::size_t block, std::size_t size, float a, void* to) {
  if constexpr (kSink == Sink::kAxpy) {
    return axpy_one<Fp8Format<Kind>>(kind, a, scales, codes, block, size, static_cast<float*>(to));
  } else {
    return dequantize_one<Fp8Format<Kind>>(kind, scales, codes, block, size, kTarget, to);
  }
}

template <typename Kind>
HWY_INLINE bool has_bad_codes(const std::uint8_t* codes) {
  auto largest = hn::Zero(di8);
  for (std::size_t i = 0; i < kFp8Block; i += hn::Lanes(di8)) {
    const auto magnitude = hn::And(hn::LoadU(du8, codes + i), hn::Set(du8, 0x7F));
    largest = hn::Max(largest, hn::BitCast(di8, magnitude));
  }
  const auto last = hn::Set(di8, static_cast<std::int8_t>(Kind::kLargestCode));
  return !hn::AllFalse(di8, hn::Gt(largest, last));
}

template <typename Kind, FloatKind kTarget, Sink kSink>
bool decode_fp8(const QuantSpec& spec, float a, const void* scales, const std::uint8_t* codes,
                std::size_t n, void* to) {
  constexpr hn::Rebind<std::int8_t, decltype(di32)> di8_quarter;
  auto* values = static_cast<std::uint8_t*>(to);
  const F32 factor = hn::Set(df32, a);
  const std::size_t whole = n / kFp8Block;
  bool bad = false;
  F32 peak = hn::Zero(df32);
  for (std::size_t b = 0; b < whole; ++b) {
    const float stored = load_scale(spec.scales, scales, b);
    const std::uint8_t* from = codes + b * kFp8Block;
    if (HWY_UNLIKELY(bits_of(stored) > harmless_scale<Fp8Format<Kind>>() ||
                     has_bad_codes<Kind>(from))) {
      bad |=
          decode_fp8_unusual<Kind, kTarget, kSink>(spec.scales, scales, codes, b, kFp8Block, a, to);
      continue;
    }
    const F32 scale = hn::Set(df32, stored);
    for (std::size_t i = 0; i < kFp8Block; i += kGroup) {
      F32 v[4];
      for (std::size_t j = 0; j < 4; ++j) {
        const auto bytes =
            hn::LoadU(di8_quarter, reinterpret_cast<const std::int8_t*>(from) + i + j * kLanes);
        v[j] = hn::Mul(fp8_numbers<Kind>(hn::PromoteTo(di32, bytes)), scale);
        if constexpr (kTarget == FloatKind::kF16) peak = hn::Max(peak, hn::Abs(v[j]));
      }
      put<kTarget, kSink>(v[0], v[1], v[2], v[3], values, b * kFp8Block + i, factor);
    }
  }
  if constexpr (kSink == Sink::kStream) hwy::FlushStream();
  if constexpr (kTarget == FloatKind::kF16) {
    bad |= hn::GetLane(hn::MaxOfLanes(df32, peak)) >= kHalfOverflow;
  }
  const std::size_t rest = n % kFp8Block;
  if (rest != 0) {
    bad |= decode_fp8_unusual<Kind, kTarget, kSink>(spec.scales, scales, codes, whole, rest, a, to);
  }
  return bad;
}

template <typename Kind, FloatKind kTarget>
bool fp8_to(const QuantSpec& spec, const void* scales, const std::uint8_t* codes, std::size_t n,
            void* to) {
  if (n * bytes_of(kTarget) >= kStreamingBytesMin && is_aligned(to)) {
    return decode_fp8<Kind, kTarget, Sink::kStream>(spec, 0, scales, codes, n, to);
  }
  return decode_fp8<Kind, kTarget, Sink::kStore>(spec, 0, scales, codes, n, to);
}

#endif  // SWARMLINE_WIDE

template <typename Kind>
HWY_INLINE bool quantize_kind(const QuantSpec& spec, FloatKind source, const void* values,
                              std::size_t n, void* scales, std::uint8_t* codes) {
#if SWARMLINE_WIDE
  switch (source) {
    case FloatKind::kF32:
      return fp8_from<Kind, FloatKind::kF32>(spec, values, n, scales, codes);
    case FloatKind::kF16:
      return fp8_from<Kind, FloatKind::kF16>(spec, values, n, scales, codes);
    case FloatKind::kBf16:
      return fp8_from<Kind, FloatKind::kBf16>(spec, values, n, scales, codes);
  }
#endif
  return quantize_blocks<Fp8Format<Kind>>(spec, source, values, n, nullptr, scales, codes);
}
template <typename Kind>
HWY_INLINE bool dequantize_kind(const QuantSpec& spec, const void* scales,
                                const std::uint8_t* codes, std::size_t n, FloatKind target,
                                void* values) {
#if SWARMLINE_WIDE
  switch (target) {
    case FloatKind::kF32:
      return fp8_to<Kind, FloatKind::kF32>(spec, scales, codes, n, values);
    case FloatKind::kF16:
      return fp8_to<Kind, FloatKind::kF16>(spec, scales, codes, n, values);
    case FloatKind::kBf16:
      return fp8_to<Kind, FloatKind::kBf16>(spec, scales, codes, n, values);
  }
#endif
  return dequantize_blocks<Fp8Format<Kind>>(spec, scales, codes, n, target, values);
}
template <typename Kind>
HWY_INLINE bool axpy_kind(const QuantSpec& spec, float a, const void* scales,
                          const std::uint8_t* codes, std::size_t n, float* y) {
#if SWARMLINE_WIDE
  return decode_fp8<Kind, FloatKind::kF32, Sink::kAxpy>(spec, a, scales, codes, n, y);
#else
  return axpy_blocks<Fp8Format<Kind>>(spec, a, scales, codes, n, y);
#endif
}

bool quantize_fp8(const QuantSpec& spec, FloatKind source, const void* values, std::size_t n,
                  const StochasticKey*, void* scales, std::uint8_t* codes) {
  return spec.format == QuantFormat::kE4M3
             ? quantize_kind<E4M3>(spec, source, values, n, scales, codes)
             : quantize_kind<E5M2>(spec, source, values, n, scales, codes);
}
bool dequantize_fp8(const QuantSpec& spec, const void* scales, const std::uint8_t* codes,
                    std::size_t n, FloatKind target, void* values) {
  return spec.format == QuantFormat::kE4M3
             ? dequantize_kind<E4M3>(spec, scales, codes, n, target, values)
             : dequantize_kind<E5M2>(spec, scales, codes, n, target, values);
}
bool axpy_fp8(const QuantSpec& spec, float a, const void* scales, const std::uint8_t* codes,
              std::size_t n, float* y) {
  return spec.format == QuantFormat::kE4M3 ? axpy_kind<E4M3>(spec, a, scales, codes, n, y)
                                           : axpy_kind<E5M2>(spec, a, scales, codes, n, y);
}

}  // namespace
}  // namespace swarmline::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace swarmline::kernels {
namespace {

SWARMLINE_QUANT_DISPATCH(fp8);

}  // namespace

const QuantKernels kE4M3Kernels = kDispatched;
const QuantKernels kE5M2Kernels = kDispatched;

}  // namespace swarmline::kernels
#endif  // HWY_ONCE
