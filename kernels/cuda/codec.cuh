// The formats of kernels/format/ as the CUDA kernels use them: V neighbouring elements at a time,
// their codes packed into words, per-thread tables in shared memory.
//
// What each codec has:
//   kBits, kRotated (log2 of the points of its rotation, 0: none), kBlock (0: the caller's choice),
//   kStochastic, kTop, kLargestScale, kZeroWithoutScale (codes of a block of scale 0 are 0 and not
//   what zero is coded as), Tables (in shared memory), fill(thread, tables, encodes, decodes),
//   code(x, inverse, tables): in a block whose scale is no NaN, code_stochastic(x, inverse, draw),
//   number(code, tables): what a code stands for before the scale. A code is in byte kCodeByte of
//   the word returned; if it has 4 bits, in the low ones. Other bits may be anything.
//   With kInFours, four_codes(x, inverse) takes the place of code(): those of x[0] to x[3].
#pragma once

#include <cstdint>

#include "kernels/cuda/dyn8_cells.cuh"
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
  static constexpr bool kInFours = false;
  static constexpr unsigned kCodeByte = 0;
  static constexpr bool kStochastic = true;
  static constexpr bool kZeroWithoutScale = false;
  static constexpr float kTop = kLin8Top;
  static constexpr std::uint32_t kLargestScale = kLin8LargestScale;
  static_assert(stays_below_top(kTop, kLargestScale));
  using Tables = NoTables;
  static SWARMLINE_DEVICE void fill(unsigned, Tables&, bool, bool) {}
  static SWARMLINE_DEVICE std::uint32_t code(float x, float inverse, const Tables&) {
    return near_integer(x, inverse);
  }
  static SWARMLINE_DEVICE std::uint32_t code_stochastic(float x, float inverse,
                                                        std::uint32_t draw) {
    return static_cast<std::uint32_t>(lin8_code_stochastic(x, inverse, draw));
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
  static constexpr bool kInFours = false;
  static constexpr unsigned kCodeByte = 0;
  static constexpr unsigned kBlock = kInt4Block;
  static constexpr bool kStochastic = true;
  static constexpr bool kZeroWithoutScale = false;
  static constexpr float kTop = kInt4Top;
  static constexpr std::uint32_t kLargestScale = kInt4LargestScale;
  static_assert(stays_below_top(kTop, kLargestScale));
  using Tables = NoTables;
  static SWARMLINE_DEVICE void fill(unsigned, Tables&, bool, bool) {}
  static SWARMLINE_DEVICE std::uint32_t code(float x, float inverse, const Tables&) {
    return near_integer(x, inverse);
  }
  static SWARMLINE_DEVICE std::uint32_t code_stochastic(float x, float inverse,
                                                        std::uint32_t draw) {
    return static_cast<std::uint32_t>(int4_code_stochastic(x, inverse, draw));
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

// fp8_code() of two numbers that are no NaN, the first lower. Newer devices have a conversion that
// rounds and saturates alike.
template <typename F>
SWARMLINE_DEVICE std::uint32_t two_fp8_codes(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint16_t pair;
  if constexpr (F::kShift == E4M3::kShift) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  }
  return pair;
#else
  return fp8_code<F>(low) | std::uint32_t{fp8_code<F>(high)} << 8;
#endif
}

template <typename F, QuantFormat kName>
struct Fp8 {
  static constexpr QuantFormat kFormat = kName;
  static constexpr unsigned kBits = 8;
  static constexpr bool kInFours = true;
  static constexpr unsigned kRotated = 0;
  static constexpr unsigned kBlock = kFp8Block;
  static constexpr bool kStochastic = false;
  static constexpr bool kZeroWithoutScale = true;
  static constexpr float kTop = F::kTop;
  static constexpr std::uint32_t kLargestScale = F::kLargestScale;
  using Tables = NoTables;
  static SWARMLINE_DEVICE void fill(unsigned, Tables&, bool, bool) {}
  static SWARMLINE_DEVICE std::uint32_t four_codes(const float* x, float inverse) {
    return two_fp8_codes<F>(x[0] * inverse, x[1] * inverse) |
           two_fp8_codes<F>(x[2] * inverse, x[3] * inverse) << 16;
  }
  static SWARMLINE_DEVICE float number(std::uint32_t code, const Tables&) {
    return fp8_number<F>(static_cast<std::uint8_t>(code));
  }
};
using Fp8E4M3 = Fp8<E4M3, QuantFormat::kE4M3>;
using Fp8E5M2 = Fp8<E5M2, QuantFormat::kE5M2>;

#if defined(__CUDACC__)
#define SWARMLINE_DEVICE_TABLE static __device__ const
#else
#define SWARMLINE_DEVICE_TABLE inline constexpr
#endif
SWARMLINE_DEVICE_TABLE Dyn8Cells<true> kDeviceDyn8SignedCells = dyn8_cells<true>();
SWARMLINE_DEVICE_TABLE Dyn8Cells<false> kDeviceDyn8UnsignedCells = dyn8_cells<false>();
SWARMLINE_DEVICE_TABLE Dyn8Codebook kDeviceDyn8Codebooks[2] = {kDyn8UnsignedCodebook,
                                                               kDyn8SignedCodebook};
#undef SWARMLINE_DEVICE_TABLE

template <bool kSigned>
SWARMLINE_DEVICE const Dyn8Cells<kSigned>& device_dyn8_cells() {
  if constexpr (kSigned) {
    return kDeviceDyn8SignedCells;
  } else {
    return kDeviceDyn8UnsignedCells;
  }
}

// For y < 0, the code in the upper 8 bits mirrored at 127, and at least 0: there is none for -1.
SWARMLINE_DEVICE std::uint32_t mirrored_if(float y, std::uint32_t code) {
#if defined(__CUDA_ARCH__)
  // Predicated; the compiler would compute both and select.
  asm("{\n\t.reg .pred below;\n\tsetp.lt.f32 below, %1, 0f00000000;\n\t"
      "@below sub.s32 %0, 0xFEFFFFFF, %0;\n\t@below max.s32 %0, %0, 0;\n\t}"
      : "+r"(code)
      : "f"(y));
  return code;
#else
  const auto mirrored = static_cast<std::int32_t>(0xFEFFFFFFU - code);
  if (!(y < 0)) return code;
  return static_cast<std::uint32_t>(mirrored < 0 ? 0 : mirrored);
#endif
}

template <bool kSigned>
struct Dyn8 {
  static constexpr QuantFormat kFormat = kSigned ? QuantFormat::kDyn8 : QuantFormat::kDyn8Unsigned;
  static constexpr unsigned kBits = 8;
  static constexpr bool kInFours = false;
  static constexpr unsigned kCodeByte = 3;
  static constexpr unsigned kRotated = 0;
  static constexpr unsigned kBlock = 0;
  static constexpr bool kStochastic = false;
  static constexpr bool kZeroWithoutScale = false;
  static constexpr float kTop = kDyn8Top;
  static constexpr std::uint32_t kLargestScale = kDyn8LargestScale;
  using Cells = Dyn8Cells<kSigned>;
  struct Tables {
    Cells cells;
    float codebook[256];
  };
  static SWARMLINE_DEVICE void fill(unsigned thread, Tables& tables, bool encodes, bool decodes) {
    if (decodes) fill_codebook(thread, tables.codebook);
    if (encodes) fill_cells(thread, tables.cells);
  }
  static SWARMLINE_DEVICE void fill_codebook(unsigned thread, float* codebook) {
    codebook[thread] = kDeviceDyn8Codebooks[kSigned].value[thread];
  }
  static SWARMLINE_DEVICE void fill_cells(unsigned thread, Cells& cells) {
    const std::uint32_t* const from = device_dyn8_cells<kSigned>().word;
    SWARMLINE_UNROLL
    for (unsigned first = 0; first < Cells::kCount; first += 4 * kTeamThreads) {
      const unsigned i = first + 4 * thread;
      if (i < Cells::kCount) {
        *reinterpret_cast<Words<16>*>(cells.word + i) =
            *reinterpret_cast<const Words<16>*>(from + i);
      }
    }
  }
  static SWARMLINE_DEVICE std::uint32_t code(float x, float inverse, const Tables& tables) {
    return code(x, inverse, tables.cells);
  }
  static SWARMLINE_DEVICE std::uint32_t code(float x, float inverse, const Cells& cells) {
    const float y = x * inverse;
    const float magnitude = kSigned ? magnitude_as_float(y) : y;
    const std::uint32_t above =
        cells.above(bits_of(magnitude > Cells::kLowest ? magnitude : Cells::kLowest));
    return kSigned ? mirrored_if(y, above) : above;
  }
  static SWARMLINE_DEVICE float number(std::uint32_t code, const Tables& tables) {
    return tables.codebook[code];
  }
};

}  // namespace swarmline::kernels::cuda
