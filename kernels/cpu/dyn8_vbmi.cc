// Built with AVX-512 VBMI as the one target, so that Highway's vectors and intrinsics mix.

#include "kernels/cpu/dyn8_vbmi.h"

#if defined(__AVX512VBMI__)
#define HWY_COMPILE_ONLY_STATIC
#include "kernels/cpu/quant_formats.h"
#include "kernels/cpu/quant_vector.inc"
#if HWY_TARGET != HWY_AVX3
#error "dyn8_vbmi.cc: built with flags that Highway does not take for AVX-512"
#endif

HWY_BEFORE_NAMESPACE();
namespace swarmline::kernels::HWY_NAMESPACE {
namespace {

// Byte p of the value of each code, p = 0 the lowest.
struct Planes {
  std::uint8_t byte[4][256];
};
constexpr Planes planes_of(const Dyn8Codebook& book) {
  Planes planes = {};
  for (int code = 0; code < 256; ++code) {
    const auto bits = __builtin_bit_cast(std::uint32_t, book.value[code]);
    for (int p = 0; p < 4; ++p) {
      planes.byte[p][code] = static_cast<std::uint8_t>(bits >> (8 * p));
    }
  }
  return planes;
}

template <bool kSigned>
struct Dyn8Planes {
  using Plain = Dyn8<kSigned>;
  alignas(64) static constexpr Planes kPlanes = planes_of(kSigned ? kDyn8SignedCodebook
                                                                  : kDyn8UnsignedCodebook);

  static HWY_INLINE __m512i look_up(const std::uint8_t* plane, __m512i codes, __mmask64 upper) {
    const __m512i low =
        _mm512_permutex2var_epi8(_mm512_load_si512(plane), codes, _mm512_load_si512(plane + 64));
    const __m512i high = _mm512_permutex2var_epi8(_mm512_load_si512(plane + 128), codes,
                                                  _mm512_load_si512(plane + 192));
    return _mm512_mask_blend_epi8(upper, low, high);
  }

  template <FloatKind kTarget, Sink kSink>
  static HWY_INLINE void decode(const std::uint8_t* from, std::size_t block, float stored, float a,
                                std::uint8_t* values) {
    const F32 scale = hn::Set(df32, stored);
    const F32 factor = hn::Set(df32, a);
    for (std::size_t i = 0; i < block; i += kGroup) {
      // Arranged so that the interleaving below ends in the elements' order.
      const __m512i codes = in_element_order(hn::LoadU(du8, from + i)).raw;
      const __mmask64 upper = _mm512_movepi8_mask(codes);
      const __m512i b0 = look_up(kPlanes.byte[0], codes, upper);
      const __m512i b1 = look_up(kPlanes.byte[1], codes, upper);
      const __m512i b2 = look_up(kPlanes.byte[2], codes, upper);
      const __m512i b3 = look_up(kPlanes.byte[3], codes, upper);
      const __m512i low_half = _mm512_unpacklo_epi8(b0, b1);
      const __m512i low_half_2 = _mm512_unpackhi_epi8(b0, b1);
      const __m512i high_half = _mm512_unpacklo_epi8(b2, b3);
      const __m512i high_half_2 = _mm512_unpackhi_epi8(b2, b3);
      const auto scaled = [&](__m512i bits)
                              HWY_ATTR { return hn::Mul(F32{_mm512_castsi512_ps(bits)}, scale); };
      put<kTarget, kSink>(scaled(_mm512_unpacklo_epi16(low_half, high_half)),
                          scaled(_mm512_unpackhi_epi16(low_half, high_half)),
                          scaled(_mm512_unpacklo_epi16(low_half_2, high_half_2)),
                          scaled(_mm512_unpackhi_epi16(low_half_2, high_half_2)), values, i,
                          factor);
    }
  }
};

}  // namespace
}  // namespace swarmline::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace swarmline::kernels::vbmi {

using HWY_NAMESPACE::Dyn8Planes;

bool dequantize_dyn8(const QuantSpec& spec, const void* scales, const std::uint8_t* codes,
                     std::size_t n, FloatKind target, void* values) {
  const auto run = spec.format == QuantFormat::kDyn8
                       ? HWY_NAMESPACE::dequantize_vector<Dyn8Planes<true>>
                       : HWY_NAMESPACE::dequantize_vector<Dyn8Planes<false>>;
  return run(spec, scales, codes, n, target, values);
}
bool axpy_dyn8(const QuantSpec& spec, float a, const void* scales, const std::uint8_t* codes,
               std::size_t n, float* y) {
  const auto run = spec.format == QuantFormat::kDyn8
                       ? HWY_NAMESPACE::axpy_vector<Dyn8Planes<true>>
                       : HWY_NAMESPACE::axpy_vector<Dyn8Planes<false>>;
  return run(spec, a, scales, codes, n, y);
}

}  // namespace swarmline::kernels::vbmi

#else  // not an x86 build

namespace swarmline::kernels::vbmi {

bool dequantize_dyn8(const QuantSpec&, const void*, const std::uint8_t*, std::size_t, FloatKind,
                     void*) {
  __builtin_trap();  // quant_path() never says so
}
bool axpy_dyn8(const QuantSpec&, float, const void*, const std::uint8_t*, std::size_t, float*) {
  __builtin_trap();
}

}  // namespace swarmline::kernels::vbmi
#endif
