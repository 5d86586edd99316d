// The formats of kernels/format/ as the CUDA kernels use them: V neighbouring elements at a time,
// their codes packed into words, per-thread tables in shared memory.
//
// What each codec has:
//   kBits, kRotated (log2 of the points of its rotation, 0: none), kBlock (0: the caller's choice),
//   kStochastic, kTop, kLargestScale, kZeroWithoutScale (codes of a block of scale 0 are 0 and not
//   what zero is coded as), Tables (in shared memory), fill(thread, tables, encodes, decodes),
//   code(x, inverse, tables): in a block whose scale is no NaN, code_stochastic(x, inverse, draw),
//   number(code, tables): what a code stands for before the scale.
#pragma once

#include <cstdint>

#include "kernels/cuda/vector_io.cuh"
#include "kernels/format/dyn8.h"
#include "kernels/format/fp8.h"
#include "kernels/format/h8.h"
#include "kernels/format/int4.h"
#include "kernels/format/lin8.h"
#include "kernels/format/philox.h"
#include "kernels/format/scale.h"

namespace swarmline::kernels::cuda {

struct NoTables {};
template <typename C>
inline constexpr bool kHasTables = sizeof(typename C::Tables) > sizeof(NoTables);

// Whether no x * inverse is coded as more than the top. It passes the top where the scale is the
// largest and the block's absmax is larger than the scale stands for, by most with a bf16 scale.
constexpr bool stays_below_top(float top, std::uint32_t largest_scale) {
  constexpr double kRoundings = 1 + 0x1p-20;  // of the scale, its inverse and the product
  const double scale = __builtin_bit_cast(float, largest_scale & 0xFFFF0000U);
  return 0x1.FFFFFEp127 / scale * kRoundings < top + 0.5;
}
// In its low bits, the integer next to x * inverse, as lin8_code() has it before it is clamped.
SWARMLINE_DEVICE std::uint32_t near_integer(float x, float inverse) {
  const float y = x * inverse;
  return bits_of(y + 12582912.0F);
}

struct LinearBytes {
  static constexpr unsigned kBits = 8;
  static constexpr bool kStochastic = true;
  static constexpr bool kZeroWithoutScale = false;
  static constexpr float kTop = kLin8Top;
  static constexpr std::uint32_t kLargestScale = kLin8LargestScale;
  static_assert(stays_below_top(kTop, kLargestScale));
  using Tables = NoTables;
  static SWARMLINE_DEVICE void fill(unsigned, Tables&, bool, bool) {}
  static SWARMLINE_DEVICE std::uint32_t code(float x, float inverse, const Tables&) {
    return near_integer(x, inverse) & 0xFFU;
  }
  static SWARMLINE_DEVICE std::uint32_t code_stochastic(float x, float inverse,
                                                        std::uint32_t draw) {
    return static_cast<std::uint8_t>(lin8_code_stochastic(x, inverse, draw));
  }
  static SWARMLINE_DEVICE float number(std::uint32_t code, const Tables&) {
    const std::int32_t q = static_cast<std::int8_t>(code);
    return static_cast<float>(q < -127 ? -127 : q);
  }
};
struct Lin8 : LinearBytes {
  static constexpr QuantFormat kFormat = QuantFormat::kLin8;
  static constexpr unsigned kRotated = 0;
  static constexpr unsigned kBlock = 0;
};
struct H8 : LinearBytes {
  static constexpr QuantFormat kFormat = QuantFormat::kH8;
  static constexpr unsigned kRotated = 6;
  static constexpr unsigned kBlock = kH8Block;
  static constexpr float kPrescale = kH8Prescale;
};

struct LinearNibbles {
  static constexpr unsigned kBits = 4;
  static constexpr unsigned kBlock = kInt4Block;
  static constexpr bool kStochastic = true;
  static constexpr bool kZeroWithoutScale = false;
  static constexpr float kTop = kInt4Top;
  static constexpr std::uint32_t kLargestScale = kInt4LargestScale;
  static_assert(stays_below_top(kTop, kLargestScale));
  using Tables = NoTables;
  static SWARMLINE_DEVICE void fill(unsigned, Tables&, bool, bool) {}
  static SWARMLINE_DEVICE std::uint32_t code(float x, float inverse, const Tables&) {
    return near_integer(x, inverse) & 15U;
  }
  static SWARMLINE_DEVICE std::uint32_t code_stochastic(float x, float inverse,
                                                        std::uint32_t draw) {
    return static_cast<std::uint32_t>(int4_code_stochastic(x, inverse, draw)) & 15U;
  }
  static SWARMLINE_DEVICE float number(std::uint32_t code, const Tables&) {
    return static_cast<float>(int4_unpack(code));
  }
};
struct Int4 : LinearNibbles {
  static constexpr QuantFormat kFormat = QuantFormat::kInt4;
  static constexpr unsigned kRotated = 0;
};
struct H4 : LinearNibbles {
  static constexpr QuantFormat kFormat = QuantFormat::kH4;
  static constexpr unsigned kRotated = 5;
  static constexpr float kPrescale = kH4Prescale;
};

template <typename F, QuantFormat kName>
struct Fp8 {
  static constexpr QuantFormat kFormat = kName;
  static constexpr unsigned kBits = 8;
  static constexpr unsigned kRotated = 0;
  static constexpr unsigned kBlock = kFp8Block;
  static constexpr bool kStochastic = false;
  static constexpr bool kZeroWithoutScale = true;
  static constexpr float kTop = F::kTop;
  static constexpr std::uint32_t kLargestScale = F::kLargestScale;
  using Tables = NoTables;
  static SWARMLINE_DEVICE void fill(unsigned, Tables&, bool, bool) {}
  static SWARMLINE_DEVICE std::uint32_t code(float x, float inverse, const Tables&) {
    return fp8_code<F>(x * inverse);
  }
  static SWARMLINE_DEVICE float number(std::uint32_t code, const Tables&) {
    return fp8_number<F>(static_cast<std::uint8_t>(code));
  }
};
using Fp8E4M3 = Fp8<E4M3, QuantFormat::kE4M3>;
using Fp8E5M2 = Fp8<E5M2, QuantFormat::kE5M2>;

inline constexpr unsigned kDyn8Guess = 164;         // float bits times this, upper half,
inline constexpr unsigned kDyn8GuessOfLowest = 33;  // less this: the decade or the one below
inline constexpr float kDyn8Lowest = 0x1p-23F;      // below both maps' first threshold

#if defined(__CUDACC__)
static __device__ const Dyn8Map kDeviceDyn8Maps[2] = {kDyn8UnsignedMap, kDyn8SignedMap};
static __device__ const Dyn8Codebook kDeviceDyn8Codebooks[2] = {kDyn8UnsignedCodebook,
                                                                kDyn8SignedCodebook};
#else
inline constexpr Dyn8Map kDeviceDyn8Maps[2] = {kDyn8UnsignedMap, kDyn8SignedMap};
inline constexpr Dyn8Codebook kDeviceDyn8Codebooks[2] = {kDyn8UnsignedCodebook,
                                                         kDyn8SignedCodebook};
#endif

// Every look-up is of a table of nine, so that no two threads of a warp want different words of one
// bank. The result is dyn8_step's: the decade is guessed from the exponent and mended by one
// comparison instead of counting thresholds.
template <bool kSigned>
struct Dyn8 {
  static constexpr QuantFormat kFormat = kSigned ? QuantFormat::kDyn8 : QuantFormat::kDyn8Unsigned;
  static constexpr unsigned kBits = 8;
  static constexpr unsigned kRotated = 0;
  static constexpr unsigned kBlock = 0;
  static constexpr bool kStochastic = false;
  static constexpr bool kZeroWithoutScale = false;
  static constexpr float kTop = kDyn8Top;
  static constexpr std::uint32_t kLargestScale = kDyn8LargestScale;
  struct alignas(16) Decade {
    float slope;
    float offset;
    float above;  // threshold of the next decade
    float top;
  };
  struct Tables {
    Decade decade[kDyn8Decades];
    float codebook[256];
  };
  static SWARMLINE_DEVICE void fill(unsigned thread, Tables& tables, bool encodes, bool decodes) {
    if (decodes) tables.codebook[thread] = kDeviceDyn8Codebooks[kSigned].value[thread];
    if (encodes && thread < kDyn8Decades) {
      const Dyn8Map& map = kDeviceDyn8Maps[kSigned];
      const float above =
          thread + 1 < kDyn8Decades ? map.threshold[thread + 1] : float_of(kFloatInfinity);
      tables.decade[thread] = {map.slope[thread], map.offset[thread], above, map.top[thread]};
    }
  }
  static SWARMLINE_DEVICE std::uint32_t code(float x, float inverse, const Tables& tables) {
    const float y = x * inverse;
    const float magnitude = kSigned ? float_of(magnitude_of(y)) : y;
    const float a = magnitude > kDyn8Lowest ? magnitude : kDyn8Lowest;
    const auto guess = static_cast<std::uint32_t>((std::uint64_t{bits_of(a)} * kDyn8Guess) >> 32) -
                       kDyn8GuessOfLowest;
    const Decade* decade = tables.decade + guess;
    if (a >= decade->above) ++decade;
    const float product = a * decade->slope;
    const float f = product + decade->offset;
    const float step = f < decade->top ? f : decade->top;
    if constexpr (kSigned) {
      // Cutting off towards zero, the sign may go first.
      const std::uint32_t sign = bits_of(y) & 0x80000000U;
      const std::int32_t code = 127 + static_cast<std::int32_t>(float_of(bits_of(step) | sign));
      return static_cast<std::uint32_t>(code < 0 ? 0 : code);
    } else {
      return static_cast<std::uint32_t>(static_cast<std::int32_t>(step) - 1);
    }
  }
  static SWARMLINE_DEVICE float number(std::uint32_t code, const Tables& tables) {
    return tables.codebook[code];
  }
};

}  // namespace swarmline::kernels::cuda
