// Plain loops over one block of h8, fp8, int4 and h4, block by block: what every instruction set
// must agree with, and what the vector loops leave over (a short last block). A format F has
//   kBlock, kTop, kLargestScale, kCodeBits; kPadded: a short block is coded whole;
//   void rotate(float* block): before absmax and codes;  void unrotate(float* block): of numbers;
//   code(float value, float inverse), number(code), value(float number, float stored);
//   kStochastic, code_stochastic(value, inverse, draw).
// Internal linkage throughout, for the reason element.h gives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/quant_scalar.h"
#include "kernels/format/fp8.h"
#include "kernels/format/h8.h"
#include "kernels/format/int4.h"

namespace swarmline::kernels {
namespace {

struct Unrotated {
  static void rotate(float*) {}
  static void unrotate(float*) {}
  static float value(float number, float stored) { return number * stored; }
};
template <std::uint32_t kSize>
struct Rotated {
  static void rotate(float* block) {
    constexpr float kPrescale = kSize == kH8Block ? kH8Prescale : kH4Prescale;
    for (std::uint32_t i = 0; i < kSize; ++i) block[i] *= kPrescale;
    hadamard<kSize>(block);
  }
  static void unrotate(float* block) { hadamard<kSize>(block); }
  static float value(float sum, float stored) { return rotated_value(sum, stored); }
};

struct H8Format : Rotated<kH8Block> {
  static constexpr std::uint32_t kBlock = kH8Block;
  static constexpr std::uint32_t kCodeBits = 8;
  static constexpr bool kPadded = true;
  static constexpr bool kStochastic = true;
  static constexpr float kTop = kLin8Top;
  static constexpr std::uint32_t kLargestScale = kLin8LargestScale;
  static std::int32_t code(float value, float inverse) { return lin8_code(value, inverse); }
  static std::int32_t code_stochastic(float value, float inverse, std::uint32_t draw) {
    return lin8_code_stochastic(value, inverse, draw);
  }
  static float number(std::uint8_t code) {
    return lin8_value(static_cast<std::int8_t>(code), 1.0F);
  }
};

struct Int4Codes {
  static constexpr std::uint32_t kBlock = kInt4Block;
  static constexpr std::uint32_t kCodeBits = 4;
  static constexpr bool kStochastic = true;
  static constexpr float kTop = kInt4Top;
  static constexpr std::uint32_t kLargestScale = kInt4LargestScale;
  static std::int32_t code(float value, float inverse) { return int4_code(value, inverse); }
  static std::int32_t code_stochastic(float value, float inverse, std::uint32_t draw) {
    return int4_code_stochastic(value, inverse, draw);
  }
  static float number(std::uint8_t nibble) { return static_cast<float>(int4_unpack(nibble)); }
};
struct Int4Format : Int4Codes, Unrotated {
  static constexpr bool kPadded = false;
};
struct H4Format : Int4Codes, Rotated<kInt4Block> {
  static constexpr bool kPadded = true;
};

template <typename Kind>
struct Fp8Format : Unrotated {
  using Fp8 = Kind;
  static constexpr std::uint32_t kBlock = kFp8Block;
  static constexpr std::uint32_t kCodeBits = 8;
  static constexpr bool kPadded = false;
  static constexpr bool kStochastic = false;
  static constexpr float kTop = Kind::kTop;
  static constexpr std::uint32_t kLargestScale = Kind::kLargestScale;
  static std::int32_t code(float value, float inverse) { return fp8_code<Kind>(value * inverse); }
  static std::int32_t code_stochastic(float, float, std::uint32_t) { return 0; }
  static float number(std::uint8_t code) { return fp8_number<Kind>(code); }
  // A NaN keeps its bits, which a product need not.
  static float value(float number, float stored) {
    return not_finite(number) ? number : number * stored;
  }
};

// Bytes of the codes of `size` elements within a block.
template <typename F>
constexpr std::size_t code_bytes_of(std::size_t size) {
  const std::size_t coded = F::kPadded ? F::kBlock : size;
  return F::kCodeBits == 8 ? coded : (coded + 1) / 2;
}

inline constexpr float kHalfOverflow = 65520.0F;  // what rounds to an infinite fp16

// Bits of the largest scale with which no value can be too large for fp32 or bf16: a power of two.
template <typename F>
constexpr std::uint32_t harmless_scale() {
  std::uint32_t exponent = 127;
  for (float top = F::kTop * (F::kPadded ? F::kBlock : 1); top > 1; top /= 2) --exponent;
  return (exponent + 127) << 23;
}

template <typename F>
void encode_block(const float* block, std::size_t coded, float inverse, const StochasticKey* key,
                  std::uint64_t begin, std::uint8_t* codes) {
  std::uint8_t code[F::kBlock + 1] = {};
  Draws draws(key, begin);
  for (std::size_t i = 0; i < coded; ++i) {
    code[i] = static_cast<std::uint8_t>(key == nullptr
                                            ? F::code(block[i], inverse)
                                            : F::code_stochastic(block[i], inverse, draws.next()));
  }
  if constexpr (F::kCodeBits == 8) {
    __builtin_memcpy(codes, code, coded);
  } else {
    for (std::size_t i = 0; i < coded; i += 2) codes[i / 2] = int4_pack(code[i], code[i + 1]);
  }
}

// The block of `size` elements at `values`, which is number `b` of its tensor, to `codes`. Returns
// whether it is not finite.
template <typename F>
bool quantize_one(ScaleKind kind, FloatKind source, const void* values, std::size_t b,
                  std::size_t size, const StochasticKey* key, void* scales, std::uint8_t* codes) {
  float block[F::kBlock] = {};
  const std::size_t begin = b * F::kBlock;
  for (std::size_t i = 0; i < size; ++i) block[i] = load_value(source, values, begin + i);
  // Whatever is not finite stays so in the rotation: every element is a sum of all.
  F::rotate(block);
  const float stored = stored_scale(absmax_of(FloatKind::kF32, block, 0, F::kBlock), F::kTop,
                                    F::kLargestScale, kind);
  store_scale(kind, scales, b, stored);
  std::uint8_t* const out = codes + b * code_bytes_of<F>(F::kBlock);
  if (!(stored > 0)) {
    __builtin_memset(out, 0, code_bytes_of<F>(size));
    return not_finite(stored);
  }
  encode_block<F>(block, F::kPadded ? F::kBlock : size, 1.0F / stored, key, begin, out);
  return false;
}

// The values of block `b`, all kBlock of them where codes are kept for all.
template <typename F>
void decode_block(float stored, const std::uint8_t* codes, std::size_t size, float* block) {
  if (scale_is_bad(stored, F::kLargestScale)) {
    for (std::size_t i = 0; i < size; ++i) block[i] = float_of(kFloatNan);
    return;
  }
  const std::size_t coded = F::kPadded ? F::kBlock : size;
  for (std::size_t i = 0; i < coded; ++i) {
    block[i] = F::number(
        F::kCodeBits == 8 ? codes[i] : static_cast<std::uint8_t>(codes[i / 2] >> (i % 2 * 4)));
  }
  F::unrotate(block);
  for (std::size_t i = 0; i < size; ++i) block[i] = F::value(block[i], stored);
}

template <typename F>
bool dequantize_one(ScaleKind kind, const void* scales, const std::uint8_t* codes, std::size_t b,
                    std::size_t size, FloatKind target, void* values) {
  float block[F::kBlock];
  decode_block<F>(load_scale(kind, scales, b), codes + b * code_bytes_of<F>(F::kBlock), size,
                  block);
  bool bad = false;
  for (std::size_t i = 0; i < size; ++i) {
    bad |= store_value(target, values, b * F::kBlock + i, block[i]);
  }
  return bad;
}

// y += a * value. Returns whether a value is not finite.
template <typename F>
bool axpy_one(ScaleKind kind, float a, const void* scales, const std::uint8_t* codes, std::size_t b,
              std::size_t size, float* y) {
  float block[F::kBlock];
  decode_block<F>(load_scale(kind, scales, b), codes + b * code_bytes_of<F>(F::kBlock), size,
                  block);
  bool bad = false;
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t at = b * F::kBlock + i;
    const float product = a * block[i];
    bad |= not_finite(block[i]);
    store_at(y, at, load_at<float>(y, at) + product);
  }
  return bad;
}

template <typename F>
bool quantize_blocks(const QuantSpec& spec, FloatKind source, const void* values, std::size_t n,
                     const StochasticKey* key, void* scales, std::uint8_t* codes) {
  bool bad = false;
  for (std::size_t b = 0, begin = 0; begin < n; ++b, begin += F::kBlock) {
    const std::size_t size = n - begin < F::kBlock ? n - begin : F::kBlock;
    bad |= quantize_one<F>(spec.scales, source, values, b, size, key, scales, codes);
  }
  return bad;
}
template <typename F>
bool dequantize_blocks(const QuantSpec& spec, const void* scales, const std::uint8_t* codes,
                       std::size_t n, FloatKind target, void* values) {
  bool bad = false;
  for (std::size_t b = 0, begin = 0; begin < n; ++b, begin += F::kBlock) {
    const std::size_t size = n - begin < F::kBlock ? n - begin : F::kBlock;
    bad |= dequantize_one<F>(spec.scales, scales, codes, b, size, target, values);
  }
  return bad;
}

template <typename F>
bool axpy_blocks(const QuantSpec& spec, float a, const void* scales, const std::uint8_t* codes,
                 std::size_t n, float* y) {
  bool bad = false;
  for (std::size_t b = 0, begin = 0; begin < n; ++b, begin += F::kBlock) {
    const std::size_t size = n - begin < F::kBlock ? n - begin : F::kBlock;
    bad |= axpy_one<F>(spec.scales, a, scales, codes, b, size, y);
  }
  return bad;
}

}  // namespace
}  // namespace swarmline::kernels
