// Loads and stores of what one thread holds of a row of values or codes: as one access of up to 16
// bytes where the address allows, byte for byte the same result otherwise. Data passes once, so
// loads leave the L1 cache alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/team.cuh"
#include "kernels/element.h"
#include "kernels/quantize.h"

#if !defined(__CUDACC__)
#include <cstring>
#endif

namespace swarmline::kernels::cuda {

template <unsigned kBytes>
struct alignas(kBytes) Words {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  std::uint32_t word[kBytes / 4];
};

SWARMLINE_DEVICE bool is_aligned(const void* pointer, unsigned bytes) {
  return (reinterpret_cast<std::uintptr_t>(pointer) & (bytes - 1)) == 0;
}

// `from` and `to` are aligned to kBytes.
template <unsigned kBytes>
SWARMLINE_DEVICE Words<kBytes> load_words(const void* from) {
  Words<kBytes> w;
#if defined(__CUDA_ARCH__)
  if constexpr (kBytes == 16) {
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.word[0]), "=r"(w.word[1]), "=r"(w.word[2]), "=r"(w.word[3])
                 : "l"(__cvta_generic_to_global(from))
                 : "memory");
  } else if constexpr (kBytes == 8) {
    asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(w.word[0]), "=r"(w.word[1])
                 : "l"(__cvta_generic_to_global(from))
                 : "memory");
  } else {
    asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];"
                 : "=r"(w.word[0])
                 : "l"(__cvta_generic_to_global(from))
                 : "memory");
  }
#elif !defined(__CUDACC__)
  std::memcpy(&w, from, kBytes);
#endif
  return w;
}
template <unsigned kBytes>
SWARMLINE_DEVICE void store_words(void* to, const Words<kBytes>& w) {
#if defined(__CUDA_ARCH__)
  if constexpr (kBytes == 16) {
    __stcs(static_cast<uint4*>(to), make_uint4(w.word[0], w.word[1], w.word[2], w.word[3]));
  } else if constexpr (kBytes == 8) {
    __stcs(static_cast<uint2*>(to), make_uint2(w.word[0], w.word[1]));
  } else {
    __stcs(static_cast<unsigned*>(to), w.word[0]);
  }
#elif !defined(__CUDACC__)
  std::memcpy(to, &w, kBytes);
#endif
}

// Element types as the kernels see them. A NaN's payload is lost: only that it is one matters.
struct Float32 {
  static constexpr FloatKind kKind = FloatKind::kF32;
  static constexpr unsigned kPerLoad = 4;  // elements in 16 bytes
  using Bits = std::uint32_t;
  static constexpr std::uint32_t kExponents = 0x7F800000;  // of all values in a word
  static constexpr std::uint32_t kLowestExponents = 0x00800000;
  static constexpr std::uint32_t kCarries = 0x80000000;
  static SWARMLINE_DEVICE float value(Bits bits) { return float_of(bits); }
  static SWARMLINE_DEVICE Bits bits(float value) { return bits_of(value); }
};
struct Float16 {
  static constexpr FloatKind kKind = FloatKind::kF16;
  static constexpr unsigned kPerLoad = 8;
  using Bits = std::uint16_t;
  static constexpr std::uint32_t kExponents = 0x7C007C00;
  static constexpr std::uint32_t kLowestExponents = 0x04000400;
  static constexpr std::uint32_t kCarries = 0x80008000;
  static SWARMLINE_DEVICE float value(Bits bits) {
#if defined(__CUDA_ARCH__)
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    return float_of_half(bits);
#endif
  }
  // Exact for NaN as kernels here make it (0x7FC00000).
  static SWARMLINE_DEVICE Bits bits(float value) {
#if defined(__CUDA_ARCH__)
    Bits half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return bits_of(value) == kFloatNan ? Bits{0x7E00} : half;
#else
    return half_of(value);
#endif
  }
};
struct Bfloat16 {
  static constexpr FloatKind kKind = FloatKind::kBf16;
  static constexpr unsigned kPerLoad = 8;
  using Bits = std::uint16_t;
  static constexpr std::uint32_t kExponents = 0x7F807F80;
  static constexpr std::uint32_t kLowestExponents = 0x00800080;
  static constexpr std::uint32_t kCarries = 0x80008000;
  static SWARMLINE_DEVICE float value(Bits bits) {
    return float_of(static_cast<std::uint32_t>(bits) << 16);
  }
  // The carry of rounding never reaches a NaN whose mantissa is 0x400000.
  static SWARMLINE_DEVICE Bits bits(float value) {
    const std::uint32_t wide = bits_of(value);
    return static_cast<Bits>((wide + 0x7FFFU + ((wide >> 16) & 1U)) >> 16);
  }
};

template <typename Type>
SWARMLINE_DEVICE void unpack(const Words<16>& w, float* x) {
  SWARMLINE_UNROLL
  for (unsigned i = 0; i < Type::kPerLoad; ++i) {
    if constexpr (sizeof(typename Type::Bits) == 4) {
      x[i] = Type::value(w.word[i]);
    } else {
      x[i] = Type::value(static_cast<std::uint16_t>(w.word[i / 2] >> (16 * (i % 2))));
    }
  }
}
template <typename Type>
SWARMLINE_DEVICE bool any_not_finite(const Words<16>& w);

// Two values as one word, the first lower. A NaN's bits are not bits()'s.
template <typename Type>
SWARMLINE_DEVICE std::uint32_t pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t word;
  if constexpr (Type::kKind == FloatKind::kF16) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  }
  return word;
#else
  return Type::bits(low) | static_cast<std::uint32_t>(Type::bits(high)) << 16;
#endif
}
template <typename Type>
SWARMLINE_DEVICE Words<16> pack(const float* x) {
  Words<16> w;
  if constexpr (sizeof(typename Type::Bits) == 2) {
    SWARMLINE_UNROLL
    for (unsigned i = 0; i < 4; ++i) w.word[i] = pair<Type>(x[2 * i], x[2 * i + 1]);
    if (!rare(any_not_finite<Type>(w))) return w;
  }
  SWARMLINE_UNROLL
  for (unsigned i = 0; i < Type::kPerLoad; ++i) {
    if constexpr (sizeof(typename Type::Bits) == 4) {
      w.word[i] = Type::bits(x[i]);
    } else if (i % 2 == 0) {
      w.word[i / 2] = Type::bits(x[i]);
    } else {
      w.word[i / 2] |= static_cast<std::uint32_t>(Type::bits(x[i])) << 16;
    }
  }
  return w;
}

// kPerLoad values from values[first], of which those from `count` on do not exist and are 0.
template <typename Type>
SWARMLINE_DEVICE Words<16> load_packed(const typename Type::Bits* values, unsigned first,
                                       unsigned count, bool vector) {
  if (!rare(!vector)) return load_words<16>(values + first);
  constexpr unsigned kPerWord = Type::kPerLoad / 4;
  Words<16> w = {};
  SWARMLINE_UNROLL
  for (unsigned i = 0; i < Type::kPerLoad; ++i) {
    const std::uint32_t bits = first + i < count ? values[first + i] : 0U;
    w.word[i / kPerWord] |= bits << (16 * (i % kPerWord));
  }
  return w;
}
template <typename Type>
SWARMLINE_DEVICE void load_values(const typename Type::Bits* values, unsigned first, unsigned count,
                                  bool vector, float* x) {
  unpack<Type>(load_packed<Type>(values, first, count, vector), x);
}
template <typename Type>
SWARMLINE_DEVICE void store_values(typename Type::Bits* values, unsigned first, unsigned count,
                                   bool vector, const Words<16>& w) {
  if (!rare(!vector)) {
    store_words(values + first, w);
    return;
  }
  SWARMLINE_UNROLL
  for (unsigned i = 0; i < Type::kPerLoad; ++i) {
    constexpr unsigned kPerWord = Type::kPerLoad / 4;
    const std::uint32_t bits = w.word[i / kPerWord] >> (16 * (i % kPerWord));
    if (first + i < count) values[first + i] = static_cast<typename Type::Bits>(bits);
  }
}
// Whether one of the packed values is infinite or NaN. Adding one to an exponent of ones carries.
template <typename Type>
SWARMLINE_DEVICE bool any_not_finite(const Words<16>& w) {
  std::uint32_t carries = 0;
  SWARMLINE_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    carries |= (w.word[i] & Type::kExponents) + Type::kLowestExponents;
  }
  return (carries & Type::kCarries) != 0;
}

// Byte `kByte` of each of four words, the first lowest.
template <unsigned kByte>
SWARMLINE_DEVICE std::uint32_t bytes_of(const std::uint32_t* w) {
#if defined(__CUDA_ARCH__)
  constexpr unsigned kOfTwo = kByte | (4 + kByte) << 4;
  return __byte_perm(__byte_perm(w[0], w[1], kOfTwo), __byte_perm(w[2], w[3], kOfTwo), 0x5410);
#else
  std::uint32_t bytes = 0;
  for (unsigned i = 0; i < 4; ++i) bytes |= ((w[i] >> (8 * kByte)) & 0xFFU) << (8 * i);
  return bytes;
#endif
}
// The larger of two magnitudes; NaN if one of them is NaN.
SWARMLINE_DEVICE float larger_or_nan(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
#else
  return float_of(bits_of(a) > bits_of(b) ? bits_of(a) : bits_of(b));
#endif
}
SWARMLINE_DEVICE float magnitude_as_float(float value) {
#if defined(__CUDA_ARCH__)
  return fabsf(value);
#else
  return float_of(bits_of(value) & kFloatMagnitude);
#endif
}
// Bits of the largest magnitude of `count` values; above infinity's if one is NaN.
template <unsigned kCount>
SWARMLINE_DEVICE std::uint32_t largest_of(const float* x) {
  float largest = magnitude_as_float(x[0]);
  SWARMLINE_UNROLL
  for (unsigned i = 1; i < kCount; ++i) {
    largest = larger_or_nan(largest, magnitude_as_float(x[i]));
  }
  return bits_of(largest);
}
// The same of two 16-bit values each, in each half; signs are ignored, and the result may have any.
template <typename Type>
SWARMLINE_DEVICE std::uint32_t larger_pair(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 860
  constexpr bool kIsHalf = Type::kKind == FloatKind::kF16;
  std::uint32_t larger;
  if constexpr (kIsHalf)
    asm("max.NaN.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  if constexpr (!kIsHalf)
    asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
#else
  const std::uint32_t low_a = a & 0x7FFFU;
  const std::uint32_t low_b = b & 0x7FFFU;
  const std::uint32_t high_a = a & 0x7FFF0000U;
  const std::uint32_t high_b = b & 0x7FFF0000U;
  return (low_a > low_b ? low_a : low_b) | (high_a > high_b ? high_a : high_b);
#endif
}
// Bits of the largest magnitude of 16 values as they lie in memory.
template <typename Type>
SWARMLINE_DEVICE std::uint32_t largest_of_packed(const std::uint32_t (&word)[8]) {
  std::uint32_t pair = word[0];
  SWARMLINE_UNROLL
  for (unsigned i = 1; i < 8; ++i) pair = larger_pair<Type>(pair, word[i]);
  const float halves[2] = {Type::value(static_cast<std::uint16_t>(pair)),
                           Type::value(static_cast<std::uint16_t>(pair >> 16))};
  return largest_of<2>(halves);
}

// kBytes (2, 4, 8 or 16) of codes from codes[first], of which those from `count` on do not exist
// and are 0. The lowest byte of word[0] is the first.
template <unsigned kBytes, typename Codes>
SWARMLINE_DEVICE Codes load_codes(const std::uint8_t* codes, unsigned first, unsigned count,
                                  bool vector) {
  Codes w = {};
  vector = !rare(!vector);
  if (vector && kBytes >= 4) {
    constexpr unsigned kLoad = kBytes >= 4 ? kBytes : 4;
    const Words<kLoad> loaded = load_words<kLoad>(codes + first);
    SWARMLINE_UNROLL
    for (unsigned i = 0; i < kLoad / 4; ++i) w.word[i] = loaded.word[i];
  } else if (vector) {
    w.word[0] = *reinterpret_cast<const std::uint16_t*>(codes + first);
  } else {
    SWARMLINE_UNROLL
    for (unsigned i = 0; i < kBytes; ++i) {
      const std::uint32_t code = first + i < count ? codes[first + i] : 0U;
      w.word[i / 4] |= code << (8 * (i % 4));
    }
  }
  return w;
}
template <unsigned kBytes, typename Codes>
SWARMLINE_DEVICE void store_codes(std::uint8_t* codes, unsigned first, unsigned count, bool vector,
                                  const Codes& w) {
  vector = !rare(!vector);
  if (vector && kBytes >= 4) {
    constexpr unsigned kStore = kBytes >= 4 ? kBytes : 4;
    Words<kStore> stored;
    SWARMLINE_UNROLL
    for (unsigned i = 0; i < kStore / 4; ++i) stored.word[i] = w.word[i];
    store_words(codes + first, stored);
  } else if (vector) {
    *reinterpret_cast<std::uint16_t*>(codes + first) = static_cast<std::uint16_t>(w.word[0]);
  } else {
    SWARMLINE_UNROLL
    for (unsigned i = 0; i < kBytes; ++i) {
      if (first + i < count) {
        codes[first + i] = static_cast<std::uint8_t>(w.word[i / 4] >> (8 * (i % 4)));
      }
    }
  }
}

}  // namespace swarmline::kernels::cuda
