// CPU kernels of dyn8, both maps. Decoding here is by plain table look-ups, or AVX-512's of 32
// floats a time; dyn8_vbmi.cc has a faster one.

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dyn8.cc"
#include <hwy/foreach_target.h>
#include "kernels/cpu/dyn8_vbmi.h"
#include "kernels/cpu/quant_formats.h"
#include "kernels/cpu/quant_dispatch.h"
#include "kernels/cpu/quant_vector.inc"
#include "kernels/cpu/dyn8_encode.inc"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace swarmline::kernels::HWY_NAMESPACE {
namespace {
#if SWARMLINE_WIDE

template <bool kSigned>
struct Dyn8Vector {
  using Plain = Dyn8<kSigned>;

  template <FloatKind kSource, bool kStream>
  static HWY_INLINE void encode(const std::uint8_t* values, std::size_t block, float inverse,
                                std::uint8_t* codes) {
    Dyn8Encoder<kSigned>(inverse).template encode<kSource, kStream>(values, block, codes);
  }

  static HWY_INLINE F32 numbers(const float* codebook, const std::uint8_t* codes) {
#if HWY_TARGET == HWY_AVX3
    const __m512i index =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
    const auto of_32 = [&](int begin) HWY_ATTR {
      return _mm512_permutex2var_ps(_mm512_loadu_ps(codebook + begin), index,
                                    _mm512_loadu_ps(codebook + begin + 16));
    };
    const __mmask16 bit5 = _mm512_test_epi32_mask(index, _mm512_set1_epi32(32));
    const __mmask16 bit6 = _mm512_test_epi32_mask(index, _mm512_set1_epi32(64));
    const __mmask16 bit7 = _mm512_test_epi32_mask(index, _mm512_set1_epi32(128));
    const __m512 q0 = _mm512_mask_blend_ps(bit5, of_32(0), of_32(32));
    const __m512 q1 = _mm512_mask_blend_ps(bit5, of_32(64), of_32(96));
    const __m512 q2 = _mm512_mask_blend_ps(bit5, of_32(128), of_32(160));
    const __m512 q3 = _mm512_mask_blend_ps(bit5, of_32(192), of_32(224));
    const __m512 low = _mm512_mask_blend_ps(bit6, q0, q1);
    const __m512 high = _mm512_mask_blend_ps(bit6, q2, q3);
    return F32{_mm512_mask_blend_ps(bit7, low, high)};
#else
    // Broadcasts and blends need no shuffles, and one load for eight codes leaves the others to the
    // table.
    std::uint64_t word;
    __builtin_memcpy(&word, codes, sizeof(word));
    const auto low = static_cast<std::uint32_t>(word);
    const auto high = static_cast<std::uint32_t>(word >> 32);
    const auto of = [codebook](std::uint32_t code)
                        HWY_ATTR { return _mm256_broadcast_ss(codebook + code); };
    const __m256 v01 = _mm256_blend_ps(of(low & 0xFF), of(low >> 8 & 0xFF), 0b10);
    const __m256 v03 = _mm256_blend_ps(v01, of(low >> 16 & 0xFF), 0b100);
    const __m256 v0 = _mm256_blend_ps(v03, of(low >> 24), 0b1000);
    const __m256 v45 = _mm256_blend_ps(of(high & 0xFF), of(high >> 8 & 0xFF), 0b100000);
    const __m256 v47 = _mm256_blend_ps(v45, of(high >> 16 & 0xFF), 0b1000000);
    const __m256 v4 = _mm256_blend_ps(v47, of(high >> 24), 0b10000000);
    return F32{_mm256_blend_ps(v0, v4, 0b11110000)};
#endif
  }

  template <FloatKind kTarget, Sink kSink>
  static HWY_INLINE void decode(const std::uint8_t* codes, std::size_t block, float stored, float a,
                                std::uint8_t* values) {
    const float* codebook = (kSigned ? kDyn8SignedCodebook : kDyn8UnsignedCodebook).value;
    const F32 scale = hn::Set(df32, stored);
    const F32 factor = hn::Set(df32, a);
    for (std::size_t i = 0; i < block; i += kGroup) {
      const F32 v0 = hn::Mul(numbers(codebook, codes + i), scale);
      const F32 v1 = hn::Mul(numbers(codebook, codes + i + kLanes), scale);
      const F32 v2 = hn::Mul(numbers(codebook, codes + i + 2 * kLanes), scale);
      const F32 v3 = hn::Mul(numbers(codebook, codes + i + 3 * kLanes), scale);
      put<kTarget, kSink>(v0, v1, v2, v3, values, i, factor);
    }
  }
};

#endif  // SWARMLINE_WIDE

template <bool kSigned>
bool quantize_map(const QuantSpec& spec, FloatKind source, const void* values, std::size_t n,
                  [[maybe_unused]] const StochasticKey* key, void* scales, std::uint8_t* codes) {
#if SWARMLINE_WIDE
  return quantize_vector<Dyn8Vector<kSigned>>(spec, source, values, n, scales, codes);
#else
  return quantize_scalar<Dyn8<kSigned>>(spec, source, values, n, key, scales, codes);
#endif
}
template <bool kSigned>
bool dequantize_map(const QuantSpec& spec, const void* scales, const std::uint8_t* codes,
                    std::size_t n, FloatKind target, void* values) {
#if SWARMLINE_WIDE
  return dequantize_vector<Dyn8Vector<kSigned>>(spec, scales, codes, n, target, values);
#else
  return dequantize_scalar<Dyn8<kSigned>>(spec, scales, codes, n, target, values);
#endif
}
template <bool kSigned>
bool axpy_map(const QuantSpec& spec, float a, const void* scales, const std::uint8_t* codes,
              std::size_t n, float* y) {
#if SWARMLINE_WIDE
  return axpy_vector<Dyn8Vector<kSigned>>(spec, a, scales, codes, n, y);
#else
  return axpy_scalar<Dyn8<kSigned>>(spec, a, scales, codes, n, y);
#endif
}

bool quantize_dyn8(const QuantSpec& spec, FloatKind source, const void* values, std::size_t n,
                   const StochasticKey* key, void* scales, std::uint8_t* codes) {
  const auto run = spec.format == QuantFormat::kDyn8 ? quantize_map<true> : quantize_map<false>;
  return run(spec, source, values, n, key, scales, codes);
}
bool dequantize_dyn8(const QuantSpec& spec, const void* scales, const std::uint8_t* codes,
                     std::size_t n, FloatKind target, void* values) {
  const auto run = spec.format == QuantFormat::kDyn8 ? dequantize_map<true> : dequantize_map<false>;
  return run(spec, scales, codes, n, target, values);
}
bool axpy_dyn8(const QuantSpec& spec, float a, const void* scales, const std::uint8_t* codes,
               std::size_t n, float* y) {
  const auto run = spec.format == QuantFormat::kDyn8 ? axpy_map<true> : axpy_map<false>;
  return run(spec, a, scales, codes, n, y);
}

}  // namespace
}  // namespace swarmline::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace swarmline::kernels {
namespace {

SWARMLINE_QUANT_DISPATCH(dyn8);

// Decoding has one path more than there are targets.
bool dequantize_any_path(const QuantSpec& spec, const void* scales, const std::uint8_t* codes,
                         std::size_t n, FloatKind target, void* values) {
  const auto run = quant_path().vbmi ? vbmi::dequantize_dyn8 : dequantize_dispatched;
  return run(spec, scales, codes, n, target, values);
}
bool axpy_any_path(const QuantSpec& spec, float a, const void* scales, const std::uint8_t* codes,
                   std::size_t n, float* y) {
  const auto run = quant_path().vbmi ? vbmi::axpy_dyn8 : axpy_dispatched;
  return run(spec, a, scales, codes, n, y);
}

}  // namespace

const QuantKernels kDyn8Kernels = {
    .quantize = kDispatched.quantize,
    .dequantize = dequantize_any_path,
    .dequantize_axpy = axpy_any_path,
};

}  // namespace swarmline::kernels
#endif  // HWY_ONCE
