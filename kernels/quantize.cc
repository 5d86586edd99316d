#include "kernels/quantize.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "kernels/cpu/quant_kernels.h"
#include "kernels/cpu/quant_scalar.h"
#include "kernels/format/dyn8_codebook.h"
#include "kernels/kernels.h"

namespace swarmline::kernels {
namespace {

struct Format {
  std::uint32_t block_min;
  std::uint32_t block_max;
  bool stochastic;
  std::uint32_t codes_padded_to;  // elements
  std::uint32_t code_bits;
  const QuantKernels* kernels;
};

const Format& format_of(QuantFormat format) {
  static const Format kLin8 = {64, 4096, true, 1, 8, &kLin8Kernels};
  static const Format kDyn8 = {64, 4096, false, 1, 8, &kDyn8Kernels};
  static const Format kH8 = {64, 64, true, 64, 8, &kH8Kernels};
  static const Format kE4M3 = {128, 128, false, 1, 8, &kE4M3Kernels};
  static const Format kE5M2 = {128, 128, false, 1, 8, &kE5M2Kernels};
  static const Format kInt4 = {32, 32, true, 1, 4, &kInt4Kernels};
  static const Format kH4 = {32, 32, true, 32, 4, &kH4Kernels};
  switch (format) {
    case QuantFormat::kLin8:
      return kLin8;
    case QuantFormat::kDyn8:
    case QuantFormat::kDyn8Unsigned:
      return kDyn8;
    case QuantFormat::kH8:
      return kH8;
    case QuantFormat::kE4M3:
      return kE4M3;
    case QuantFormat::kE5M2:
      return kE5M2;
    case QuantFormat::kInt4:
      return kInt4;
    case QuantFormat::kH4:
      return kH4;
  }
  SWARMLINE_CHECK(false);
}

const QuantKernels& kernels_of(const QuantSpec& spec, const StochasticKey* key) {
  const Format& format = format_of(spec.format);
  SWARMLINE_CHECK(is_valid(spec));
  SWARMLINE_CHECK(key == nullptr || (format.stochastic && key->first_element % 8 == 0));
  SWARMLINE_CHECK(format.kernels != nullptr);
  return *format.kernels;
}

// What the composed functions below hold between two steps: a multiple of every block, and with a
// second buffer of the same size still within L1.
constexpr std::size_t kPieceElements = 4096;
struct alignas(64) Piece {
  float values[kPieceElements];
};

// One piece of n elements, from element `begin` on.
struct Range {
  std::size_t begin;
  std::size_t size;
  std::size_t scale_offset;  // bytes
  std::size_t code_offset;
};
template <typename F>
bool for_each_piece(const QuantSpec& spec, std::size_t n, F f) {
  bool bad = false;
  for (std::size_t begin = 0; begin < n; begin += kPieceElements) {
    bad |= f(Range{begin, std::min(kPieceElements, n - begin),
                   quant_blocks(spec, begin) * scale_bytes(spec.scales), code_bytes(spec, begin)});
  }
  return bad;
}

const void* moved(const void* p, std::size_t bytes) {
  return static_cast<const std::uint8_t*>(p) + bytes;
}
void* moved(void* p, std::size_t bytes) {
  return static_cast<std::uint8_t*>(p) + bytes;
}

bool quantize_piece(const QuantKernels& kernels, const QuantSpec& spec, const Piece& piece,
                    const Range& range, const StochasticKey* key, void* scales,
                    std::uint8_t* codes) {
  StochasticKey here;
  if (key != nullptr) {
    here = *key;
    here.first_element += range.begin;
  }
  return kernels.quantize(spec, FloatKind::kF32, piece.values, range.size,
                          key != nullptr ? &here : nullptr, moved(scales, range.scale_offset),
                          codes + range.code_offset);
}
bool dequantize_piece(const QuantKernels& kernels, const QuantSpec& spec, const QuantPart& part,
                      const Range& range, Piece& piece) {
  return kernels.dequantize(spec, moved(part.scales, range.scale_offset),
                            part.codes + range.code_offset, range.size, FloatKind::kF32,
                            piece.values);
}

}  // namespace

bool is_valid(const QuantSpec& spec) {
  const Format& format = format_of(spec.format);
  return std::has_single_bit(spec.block) && spec.block >= format.block_min &&
         spec.block <= format.block_max;
}
bool can_round_stochastically(QuantFormat format) {
  return format_of(format).stochastic;
}
std::size_t quant_blocks(const QuantSpec& spec, std::size_t n) {
  return n / spec.block + (n % spec.block != 0);
}
std::size_t scale_bytes(ScaleKind scales) {
  return scales == ScaleKind::kF32 ? 4 : 2;
}
std::size_t code_bytes(const QuantSpec& spec, std::size_t n) {
  const Format& format = format_of(spec.format);
  const std::size_t rest = n % format.codes_padded_to;
  const std::size_t coded = rest == 0 ? n : n - rest + format.codes_padded_to;
  return format.code_bits == 8 ? coded : coded / 2 + coded % 2;
}

bool quantize(const QuantSpec& spec, FloatKind source, const void* values, std::size_t n,
              const StochasticKey* key, void* scales, std::uint8_t* codes) {
  return kernels_of(spec, key).quantize(spec, source, values, n, key, scales, codes);
}
bool dequantize(const QuantSpec& spec, const void* scales, const std::uint8_t* codes, std::size_t n,
                FloatKind target, void* values) {
  return kernels_of(spec, nullptr).dequantize(spec, scales, codes, n, target, values);
}

bool dequantize_axpy(const QuantSpec& spec, float a, const void* scales, const std::uint8_t* codes,
                     std::size_t n, float* y) {
  const QuantKernels& kernels = kernels_of(spec, nullptr);
  if (kernels.dequantize_axpy != nullptr) {
    return kernels.dequantize_axpy(spec, a, scales, codes, n, y);
  }
  return for_each_piece(spec, n, [&](const Range& range) {
    Piece piece;
    const bool bad = dequantize_piece(kernels, spec, {scales, codes}, range, piece);
    axpy(a, piece.values, y + range.begin, range.size);
    return bad;
  });
}

bool mean_requantize(const QuantSpec& spec, const QuantPart* parts, std::size_t parts_count,
                     float factor, std::size_t n, const StochasticKey* key, void* scales,
                     std::uint8_t* codes) {
  SWARMLINE_CHECK(parts_count >= 1 && parts_count <= kQuantPartsMax);
  const QuantKernels& kernels = kernels_of(spec, key);
  if (kernels.mean_requantize != nullptr) {
    return kernels.mean_requantize(spec, parts, parts_count, factor, n, key, scales, codes);
  }
  return for_each_piece(spec, n, [&](const Range& range) {
    Piece sum, part;
    dequantize_piece(kernels, spec, parts[0], range, sum);
    for (std::size_t i = 1; i < parts_count; ++i) {
      dequantize_piece(kernels, spec, parts[i], range, part);
      add_into(part.values, sum.values, range.size);
    }
    scale(factor, sum.values, range.size);
    return quantize_piece(kernels, spec, sum, range, key, scales, codes);
  });
}

bool quantize_with_feedback(const QuantSpec& spec, const float* values, float* residual,
                            std::size_t n, const StochasticKey* key, void* scales,
                            std::uint8_t* codes) {
  const QuantKernels& kernels = kernels_of(spec, key);
  if (kernels.quantize_with_feedback != nullptr) {
    return kernels.quantize_with_feedback(spec, values, residual, n, key, scales, codes);
  }
  return for_each_piece(spec, n, [&](const Range& range) {
    Piece target, decoded;
    for (std::size_t i = 0; i < range.size; ++i) {
      const std::size_t at = range.begin + i;
      target.values[i] = load_at<float>(values, at) + load_at<float>(residual, at);
    }
    const bool bad = quantize_piece(kernels, spec, target, range, key, scales, codes);
    dequantize_piece(kernels, spec, {scales, codes}, range, decoded);
    for (std::size_t i = 0; i < range.size; ++i) {
      const float rest = target.values[i] - decoded.values[i];
      store_at(residual, range.begin + i, not_finite(rest) ? 0.0F : rest);
    }
    return bad;
  });
}

const float* dyn8_codebook(bool is_signed) {
  return (is_signed ? kDyn8SignedCodebook : kDyn8UnsignedCodebook).value;
}

}  // namespace swarmline::kernels
