// Plain loops of a one-byte format over blocks: what every instruction set must agree with, and
// what its vector loops leave over. A format F has
//   kTop, kLargestScale, kZeroCode;
//   std::uint8_t code(float x, float inverse); std::uint8_t code(float x, float inverse, draw);
//   float value(std::uint8_t code, float stored).
// Internal linkage throughout, for the reason element.h gives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/element.h"
#include "kernels/format/philox.h"
#include "kernels/format/scale.h"
#include "kernels/quantize.h"

namespace swarmline::kernels {

SWARMLINE_ELEMENT std::size_t bytes_of(FloatKind kind) {
  return kind == FloatKind::kF32 ? 4 : 2;
}
SWARMLINE_ELEMENT std::size_t bytes_of(ScaleKind kind) {
  return kind == ScaleKind::kF32 ? 4 : 2;
}

// Element i of an array of any alignment.
template <typename T>
SWARMLINE_ELEMENT T load_at(const void* array, std::size_t i) {
  T value;
  __builtin_memcpy(&value, static_cast<const char*>(array) + i * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
SWARMLINE_ELEMENT void store_at(void* array, std::size_t i, T value) {
  __builtin_memcpy(static_cast<char*>(array) + i * sizeof(T), &value, sizeof(T));
}
SWARMLINE_ELEMENT float load_value(FloatKind kind, const void* values, std::size_t i) {
  if (kind == FloatKind::kF32) return load_at<float>(values, i);
  const auto narrow = load_at<std::uint16_t>(values, i);
  return kind == FloatKind::kF16 ? float_of_half(narrow) : float_of_bfloat(narrow);
}
// Returns whether what was stored is not finite.
SWARMLINE_ELEMENT bool store_value(FloatKind kind, void* values, std::size_t i, float value) {
  if (kind == FloatKind::kF32) {
    store_at(values, i, value);
    return not_finite(value);
  }
  const bool half = kind == FloatKind::kF16;
  const std::uint16_t narrow = half ? half_of(value) : bfloat_of(value);
  const std::uint16_t exponent = half ? 0x7C00U : 0x7F80U;
  store_at(values, i, narrow);
  return (narrow & exponent) == exponent;
}
SWARMLINE_ELEMENT float load_scale(ScaleKind kind, const void* scales, std::size_t i) {
  if (kind == ScaleKind::kF32) return load_at<float>(scales, i);
  return float_of(static_cast<std::uint32_t>(load_at<std::uint16_t>(scales, i)) << 16);
}
SWARMLINE_ELEMENT void store_scale(ScaleKind kind, void* scales, std::size_t i, float stored) {
  if (kind == ScaleKind::kF32) return store_at(scales, i, stored);
  store_at(scales, i, static_cast<std::uint16_t>(bits_of(stored) >> 16));
}

// Draws one after the other.
class Draws {
 public:
  [[gnu::always_inline]] Draws(const StochasticKey* key, std::uint64_t offset)
      : key_(key), position_(key != nullptr ? key->first_element + offset : 0) {}
  [[gnu::always_inline]] std::uint32_t next() {
    if (position_ % kPhiloxDraws == 0) {
      words_ = draws_of_group(key_->seed, key_->stream, position_ / kPhiloxDraws);
    }
    return draw_of(words_, position_++);
  }

 private:
  const StochasticKey* key_;
  std::uint64_t position_;
  PhiloxWords words_ = {};
};

SWARMLINE_ELEMENT std::uint32_t absmax_of(FloatKind kind, const void* values, std::size_t begin,
                                          std::size_t size) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const std::uint32_t magnitude = magnitude_of(load_value(kind, values, begin + i));
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

// The loops below work on so many elements at a time, converted first: then they are loops over
// floats, which compilers vectorise.
inline constexpr std::size_t kChunk = 64;

SWARMLINE_ELEMENT void load_chunk(FloatKind kind, const void* values, std::size_t begin,
                                  std::size_t size, float* out) {
  if (kind == FloatKind::kF32) {
    for (std::size_t i = 0; i < size; ++i) out[i] = load_at<float>(values, begin + i);
  } else if (kind == FloatKind::kBf16) {
    for (std::size_t i = 0; i < size; ++i) {
      out[i] = float_of_bfloat(load_at<std::uint16_t>(values, begin + i));
    }
  } else {
    for (std::size_t i = 0; i < size; ++i) {
      out[i] = float_of_half(load_at<std::uint16_t>(values, begin + i));
    }
  }
}
// Returns whether something that was stored is not finite.
SWARMLINE_ELEMENT bool store_chunk(FloatKind kind, const float* chunk, std::size_t begin,
                                   std::size_t size, void* values) {
  std::uint32_t bad = 0;
  if (kind == FloatKind::kF32) {
    for (std::size_t i = 0; i < size; ++i)
      bad |= store_value(FloatKind::kF32, values, begin + i, chunk[i]);
  } else if (kind == FloatKind::kBf16) {
    for (std::size_t i = 0; i < size; ++i)
      bad |= store_value(FloatKind::kBf16, values, begin + i, chunk[i]);
  } else {
    for (std::size_t i = 0; i < size; ++i)
      bad |= store_value(FloatKind::kF16, values, begin + i, chunk[i]);
  }
  return bad != 0;
}

// Block `b`, of `size` elements. Returns whether it is not finite.
template <typename F>
[[gnu::always_inline]] static inline bool quantize_block(const QuantSpec& spec, FloatKind source,
                                                         const void* values, std::size_t b,
                                                         std::size_t size, const StochasticKey* key,
                                                         void* scales, std::uint8_t* codes) {
  const std::size_t begin = b * spec.block;
  const std::size_t end = begin + size;
  float x[kChunk];
  std::int32_t largest = 0;  // magnitudes have the sign bit clear
  for (std::size_t at = begin; at < end; at += kChunk) {
    const std::size_t count = end - at < kChunk ? end - at : kChunk;
    load_chunk(source, values, at, count, x);
    for (std::size_t i = 0; i < count; ++i) {
      const auto magnitude = static_cast<std::int32_t>(magnitude_of(x[i]));
      largest = magnitude > largest ? magnitude : largest;
    }
  }
  const float stored =
      stored_scale(static_cast<std::uint32_t>(largest), F::kTop, F::kLargestScale, spec.scales);
  store_scale(spec.scales, scales, b, stored);
  if (!(stored > 0)) {
    __builtin_memset(codes + begin, stored == 0 ? F::kZeroCode : 0, size);
    return not_finite(stored);
  }
  const float inverse = 1.0F / stored;
  Draws draws(key, begin);
  for (std::size_t at = begin; at < end; at += kChunk) {
    const std::size_t count = end - at < kChunk ? end - at : kChunk;
    load_chunk(source, values, at, count, x);
    if (key == nullptr) {
      for (std::size_t i = 0; i < count; ++i) codes[at + i] = F::code(x[i], inverse);
    } else {
      for (std::size_t i = 0; i < count; ++i) codes[at + i] = F::code(x[i], inverse, draws.next());
    }
  }
  return false;
}

// Returns whether the block is not finite, or a value of it is not in the target's range.
template <typename F>
[[gnu::always_inline]] static inline bool dequantize_block(const QuantSpec& spec,
                                                           const void* scales,
                                                           const std::uint8_t* codes, std::size_t b,
                                                           std::size_t size, FloatKind target,
                                                           void* values) {
  const std::size_t begin = b * spec.block;
  const std::size_t end = begin + size;
  const float stored = load_scale(spec.scales, scales, b);
  const bool is_bad = scale_is_bad(stored, F::kLargestScale);
  bool overflow = false;
  for (std::size_t at = begin; at < end; at += kChunk) {
    const std::size_t count = end - at < kChunk ? end - at : kChunk;
    float x[kChunk];
    for (std::size_t i = 0; i < count; ++i) {
      x[i] = is_bad ? float_of(kFloatNan) : F::value(codes[at + i], stored);
    }
    overflow |= store_chunk(target, x, at, count, values);
  }
  return overflow;
}

// y += a * value for block `b`. Returns whether it is not finite.
template <typename F>
[[gnu::always_inline]] static inline bool axpy_block(const QuantSpec& spec, float a,
                                                     const void* scales, const std::uint8_t* codes,
                                                     std::size_t b, std::size_t size, void* y) {
  const std::size_t begin = b * spec.block;
  const float stored = load_scale(spec.scales, scales, b);
  const bool is_bad = scale_is_bad(stored, F::kLargestScale);
  for (std::size_t i = begin; i < begin + size; ++i) {
    const float value = is_bad ? float_of(kFloatNan) : F::value(codes[i], stored);
    const float product = a * value;
    store_at(y, i, load_at<float>(y, i) + product);
  }
  return is_bad;
}

template <typename F>
static bool quantize_scalar(const QuantSpec& spec, FloatKind source, const void* values,
                            std::size_t n, const StochasticKey* key, void* scales,
                            std::uint8_t* codes) {
  bool bad = false;
  for (std::size_t begin = 0; begin < n; begin += spec.block) {
    const std::size_t size = n - begin < spec.block ? n - begin : spec.block;
    bad |= quantize_block<F>(spec, source, values, begin / spec.block, size, key, scales, codes);
  }
  return bad;
}
template <typename F>
static bool dequantize_scalar(const QuantSpec& spec, const void* scales, const std::uint8_t* codes,
                              std::size_t n, FloatKind target, void* values) {
  bool bad = false;
  for (std::size_t begin = 0; begin < n; begin += spec.block) {
    const std::size_t size = n - begin < spec.block ? n - begin : spec.block;
    bad |= dequantize_block<F>(spec, scales, codes, begin / spec.block, size, target, values);
  }
  return bad;
}

template <typename F>
static bool axpy_scalar(const QuantSpec& spec, float a, const void* scales,
                        const std::uint8_t* codes, std::size_t n, float* y) {
  bool bad = false;
  for (std::size_t begin = 0; begin < n; begin += spec.block) {
    const std::size_t size = n - begin < spec.block ? n - begin : spec.block;
    bad |= axpy_block<F>(spec, a, scales, codes, begin / spec.block, size, y);
  }
  return bad;
}

}  // namespace swarmline::kernels
