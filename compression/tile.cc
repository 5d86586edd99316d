// One tile through a codec. What a kernel takes directly goes straight through; the rest goes
// through fp32 in pieces on the stack.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "compression/sparse.h"
#include "compression/wire.h"
#include "kernels/kernels.h"

namespace swarmline {
namespace {

using kernels::FloatKind;
using kernels::QuantSpec;
using kernels::StochasticKey;

// A multiple of every block and of the eight elements of a stochastic draw.
constexpr std::size_t kPiece = 4096;

FloatKind float_kind(DType dtype) {
  return dtype == DType::kF16    ? FloatKind::kF16
         : dtype == DType::kBF16 ? FloatKind::kBf16
                                 : FloatKind::kF32;
}

template <typename T>
const T* as(const std::byte* bytes) {
  return reinterpret_cast<const T*>(bytes);
}
template <typename T>
T* as(std::byte* bytes) {
  return reinterpret_cast<T*>(bytes);
}

bool copy_halves(const std::byte* from, std::byte* to, std::size_t n, std::uint16_t exponent) {
  bool non_finite = false;
  for (std::size_t i = 0; i < n; ++i) {
    std::uint16_t half;
    std::memcpy(&half, from + 2 * i, sizeof half);
    std::memcpy(to + 2 * i, &half, sizeof half);
    non_finite |= (half & exponent) == exponent;
  }
  return non_finite;
}

bool copy(DType dtype, const std::byte* from, std::byte* to, std::size_t n) {
  switch (dtype) {
    case DType::kF32:
      return kernels::copy_values(as<float>(from), as<float>(to), n);
    case DType::kF64:
      return kernels::copy_values(as<double>(from), as<double>(to), n);
    case DType::kF16:
      return copy_halves(from, to, n, 0x7C00);
    case DType::kBF16:
      return copy_halves(from, to, n, 0x7F80);
    default:
      SWARMLINE_CHECK_MSG(false, "not a floating-point type");
  }
}

bool any_non_finite_half(const std::byte* values, std::size_t n, std::uint16_t exponent) {
  bool non_finite = false;
  for (std::size_t i = 0; i < n; ++i) {
    std::uint16_t half;
    std::memcpy(&half, values + 2 * i, sizeof half);
    non_finite |= (half & exponent) == exponent;
  }
  return non_finite;
}

void to_fp32(DType source, const std::byte* from, float* to, std::size_t n) {
  switch (source) {
    case DType::kF32:
      std::memcpy(to, from, n * sizeof(float));
      return;
    case DType::kF64:
      kernels::fp64_to_fp32(as<double>(from), to, n);
      return;
    case DType::kF16:
      kernels::fp16_to_fp32(as<std::uint16_t>(from), to, n);
      return;
    case DType::kBF16:
      kernels::bf16_to_fp32(as<std::uint16_t>(from), to, n);
      return;
    default:
      SWARMLINE_CHECK_MSG(false, "not a floating-point type");
  }
}
bool from_fp32(DType target, const float* from, std::byte* to, std::size_t n) {
  switch (target) {
    case DType::kF64:
      return kernels::fp32_to_fp64(from, as<double>(to), n);
    case DType::kF16:
      return kernels::fp32_to_fp16(from, as<std::uint16_t>(to), n);
    case DType::kBF16:
      return kernels::fp32_to_bf16(from, as<std::uint16_t>(to), n);
    default:
      SWARMLINE_CHECK_MSG(false, "not a target that is converted");
  }
}

bool round_fp32(CodecKind kind, const float* values, std::size_t n, std::byte* codes) {
  return kind == CodecKind::kFp16 ? kernels::fp32_to_fp16(values, as<std::uint16_t>(codes), n)
                                  : kernels::fp32_to_bf16(values, as<std::uint16_t>(codes), n);
}
bool widen_fp32(CodecKind kind, const std::byte* codes, std::size_t n, float* values) {
  return kind == CodecKind::kFp16 ? kernels::fp16_to_fp32(as<std::uint16_t>(codes), values, n)
                                  : kernels::bf16_to_fp32(as<std::uint16_t>(codes), values, n);
}

std::size_t scales_of(const QuantSpec& spec, std::size_t n) {
  return kernels::quant_blocks(spec, n) * kernels::scale_bytes(spec.scales);
}

// A source that the kernels do not take, in pieces.
bool encode_pieces(const CodecSpec& codec, DType source, const std::byte* values, std::size_t n,
                   const StochasticKey* key, std::byte* scales, std::byte* codes) {
  alignas(64) float piece[kPiece];
  const auto spec = quant_spec(codec);
  bool non_finite = false;
  for (std::size_t begin = 0; begin < n; begin += kPiece) {
    const std::size_t size = std::min(kPiece, n - begin);
    to_fp32(source, values + begin * size_bytes(source), piece, size);
    if (!spec) {
      non_finite |= round_fp32(codec.kind, piece, size, codes + begin * 2);
      continue;
    }
    StochasticKey here = key ? *key : StochasticKey{};
    here.first_element += begin;
    non_finite |= kernels::quantize(*spec, FloatKind::kF32, piece, size, key ? &here : nullptr,
                                    scales + scales_of(*spec, begin),
                                    as<std::uint8_t>(codes) + kernels::code_bytes(*spec, begin));
  }
  return non_finite;
}

bool decode_pieces(const CodecSpec& codec, const std::byte* scales, const std::byte* codes,
                   std::size_t n, DType target, std::byte* values) {
  alignas(64) float piece[kPiece];
  const auto spec = quant_spec(codec);
  bool non_finite = false;
  for (std::size_t begin = 0; begin < n; begin += kPiece) {
    const std::size_t size = std::min(kPiece, n - begin);
    if (spec) {
      non_finite |= kernels::dequantize(*spec, scales + scales_of(*spec, begin),
                                        as<std::uint8_t>(codes) + kernels::code_bytes(*spec, begin),
                                        size, FloatKind::kF32, piece);
    } else {
      non_finite |= widen_fp32(codec.kind, codes + begin * 2, size, piece);
    }
    non_finite |= from_fp32(target, piece, values + begin * size_bytes(target), size);
  }
  return non_finite;
}

}  // namespace

bool any_non_finite(DType dtype, const std::byte* values, std::size_t n) {
  switch (dtype) {
    case DType::kF32:
      return kernels::any_non_finite(as<float>(values), n);
    case DType::kF64:
      return kernels::any_non_finite(as<double>(values), n);
    case DType::kF16:
      return any_non_finite_half(values, n, 0x7C00);
    case DType::kBF16:
      return any_non_finite_half(values, n, 0x7F80);
    default:
      SWARMLINE_CHECK_MSG(false, "not a floating-point type");
  }
}

bool encode_tile(const CodecSpec& codec, DType source, const std::byte* values, std::size_t n,
                 const StochasticKey* key, std::byte* scales, std::byte* codes) {
  if (codec.kind == CodecKind::kNone) return copy(source, values, codes, n);
  if (codec.kind == CodecKind::kTopK) {
    if (n == 0) return false;
    if (source == DType::kF32)
      return select_largest(as<float>(values), n, kept_of_tile(codec, n), scales, codes);
    std::vector<float> narrow(n);
    to_fp32(source, values, narrow.data(), n);
    return select_largest(narrow.data(), n, kept_of_tile(codec, n), scales, codes);
  }
  const auto spec = quant_spec(codec);
  if (spec && source != DType::kF64)
    return kernels::quantize(*spec, float_kind(source), values, n, key, scales,
                             as<std::uint8_t>(codes));
  if (!spec && source == DType::kF32) return round_fp32(codec.kind, as<float>(values), n, codes);
  return encode_pieces(codec, source, values, n, key, scales, codes);
}

std::optional<bool> decode_tile(const CodecSpec& codec, const std::byte* scales,
                                const std::byte* codes, std::size_t n, DType target,
                                std::byte* values) {
  if (codec.kind == CodecKind::kNone) return copy(target, codes, values, n);
  if (codec.kind == CodecKind::kTopK)
    return scatter_sparse(scales, codes, kept_of_tile(codec, n), n, target, values);
  const auto spec = quant_spec(codec);
  if (spec && target != DType::kF64)
    return kernels::dequantize(*spec, scales, as<std::uint8_t>(codes), n, float_kind(target),
                               values);
  if (!spec && target == DType::kF32) return widen_fp32(codec.kind, codes, n, as<float>(values));
  return decode_pieces(codec, scales, codes, n, target, values);
}

}  // namespace swarmline
