// One element of each kernel, shared by the CPU loops and the CUDA twins, so that they cannot
// differ. Internal linkage and always inlined: the CPU loops are compiled once per instruction set,
// and a copy of one of these that uses AVX-512 must never be what the linker keeps for everybody.
// No standard library here for the same reason.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define SWARMLINE_ELEMENT __host__ __device__ static __forceinline__
#else
#define SWARMLINE_ELEMENT [[gnu::always_inline]] static inline
#endif

namespace swarmline::kernels {

SWARMLINE_ELEMENT std::uint32_t bits_of(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  return __builtin_bit_cast(std::uint32_t, value);
#endif
}
SWARMLINE_ELEMENT float float_of(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}
SWARMLINE_ELEMENT std::uint64_t bits_of(double value) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint64_t>(__double_as_longlong(value));
#else
  return __builtin_bit_cast(std::uint64_t, value);
#endif
}

inline constexpr std::uint32_t kFloatMagnitude = 0x7FFFFFFF;
inline constexpr std::uint32_t kFloatInfinity = 0x7F800000;
inline constexpr std::uint32_t kFloatSmallestNormal = 0x00800000;
inline constexpr std::uint32_t kFloatNan = 0x7FC00000;
inline constexpr std::uint64_t kDoubleMagnitude = 0x7FFFFFFFFFFFFFFF;
inline constexpr std::uint64_t kDoubleInfinity = 0x7FF0000000000000;

SWARMLINE_ELEMENT bool not_finite(float value) {
  return (bits_of(value) & kFloatMagnitude) >= kFloatInfinity;
}
SWARMLINE_ELEMENT bool not_finite(double value) {
  return (bits_of(value) & kDoubleMagnitude) >= kDoubleInfinity;
}

// Both branches are computed and one is picked: that is what vectorises. The subnormal branch lets
// the adder round: 0.5 has the exponent at which one unit in the last place of a float is one of a
// subnormal half.
SWARMLINE_ELEMENT std::uint16_t half_of(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t magnitude = bits & kFloatMagnitude;
  const std::uint32_t odd = (magnitude >> 13) & 1U;
  const std::uint32_t normal = (magnitude - (112U << 23) + 0xFFFU + odd) >> 13;
  const std::uint32_t subnormal = bits_of(float_of(magnitude) + 0.5F) - 0x3F000000U;
  const std::uint32_t nan = 0x7E00U | ((magnitude >> 13) & 0x3FFU);
  std::uint32_t half = magnitude < 0x38800000U ? subnormal : normal;  // 2^-14
  half = magnitude >= 0x477FF000U ? 0x7C00U : half;  // 65520 and more round to infinity
  half = magnitude > kFloatInfinity ? nan : half;
  return static_cast<std::uint16_t>(half | ((bits >> 16) & 0x8000U));
}
SWARMLINE_ELEMENT float float_of_half(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t magnitude = (half & 0x7FFFU) << 13;
  const std::uint32_t normal = magnitude + (112U << 23);
  const std::uint32_t special =
      magnitude + (224U << 23) + ((magnitude & 0x007FFFFFU) != 0 ? (~magnitude & 0x00400000U) : 0U);
  const std::uint32_t subnormal =
      bits_of(float_of(magnitude + (113U << 23)) - float_of(113U << 23));
  std::uint32_t bits = magnitude < kFloatSmallestNormal ? subnormal : normal;
  bits = magnitude >= (31U << 23) ? special : bits;
  return float_of(bits | sign);
}

SWARMLINE_ELEMENT std::uint16_t bfloat_of(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t nan = (bits >> 16) | 0x40U;
  return static_cast<std::uint16_t>((bits & kFloatMagnitude) > kFloatInfinity ? nan : rounded);
}
SWARMLINE_ELEMENT float float_of_bfloat(std::uint16_t value) {
  const std::uint32_t bits = static_cast<std::uint32_t>(value) << 16;
  const bool nan = (bits & kFloatMagnitude) > kFloatInfinity;
  return float_of(bits | (nan ? 0x00400000U : 0U));
}

}  // namespace swarmline::kernels
