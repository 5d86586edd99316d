#include "compression/codec.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/nearest.h"

namespace swarmline {
namespace {

using kernels::QuantFormat;
using kernels::ScaleKind;

// In the order of CodecKind.
constexpr std::array<std::string_view, kCodecKinds> kNames = {
    "none", "fp16", "bf16", "lin8", "dyn8", "h8", "fp8", "e5m2", "int4", "h4", "topk"};

constexpr std::uint32_t kBlockDefault = 256;  // of lin8 and dyn8

struct Blockwise {
  QuantFormat format;
  std::uint32_t block;
};
std::optional<Blockwise> blockwise(CodecKind kind) {
  switch (kind) {
    case CodecKind::kLin8:
      return Blockwise{QuantFormat::kLin8, kBlockDefault};
    case CodecKind::kDyn8:
      return Blockwise{QuantFormat::kDyn8, kBlockDefault};
    case CodecKind::kH8:
      return Blockwise{QuantFormat::kH8, 64};
    case CodecKind::kE4M3:
      return Blockwise{QuantFormat::kE4M3, 128};
    case CodecKind::kE5M2:
      return Blockwise{QuantFormat::kE5M2, 128};
    case CodecKind::kInt4:
      return Blockwise{QuantFormat::kInt4, 32};
    case CodecKind::kH4:
      return Blockwise{QuantFormat::kH4, 32};
    default:
      return std::nullopt;
  }
}

bool block_is_free(CodecKind kind) {
  return kind == CodecKind::kLin8 || kind == CodecKind::kDyn8;
}

std::unexpected<Error> unknown(std::string_view name) {
  std::string sentence = "unknown codec \"" + std::string(name) + "\": expected ";
  for (std::size_t i = 0; i < kNames.size(); ++i)
    sentence += (i == 0 ? "" : i + 1 == kNames.size() ? " or " : ", ") + std::string(kNames[i]);
  if (name == "int8") return fail(ErrorCode::kUserMistake, sentence + "; int8 is called lin8 now");
  if (const std::string_view known = nearest(name, kNames); !known.empty())
    sentence += "; did you mean \"" + std::string(known) + "\"?";
  return fail(ErrorCode::kUserMistake, std::move(sentence));
}

}  // namespace

std::string_view name_of(CodecKind kind) {
  return kNames[static_cast<std::size_t>(kind)];
}

Result<CodecSpec> parse_codec(std::string_view name, const CodecOptions& options) {
  const auto known = std::ranges::find(kNames, name);
  if (known == kNames.end()) return unknown(name);
  CodecSpec codec{.kind = static_cast<CodecKind>(known - kNames.begin()),
                  .checksums = options.checksums};
  if (const auto blocks = blockwise(codec.kind)) {
    const bool chosen = block_is_free(codec.kind) && options.block != 0;
    codec.block = chosen ? options.block : blocks->block;
    codec.scales = options.scales;
    if (!is_valid(codec))
      return fail(ErrorCode::kUserMistake, "codec block is " + std::to_string(options.block) +
                                               ": expected 0 or a power of two from 64 to 4096, "
                                               "for example 256");
  }
  if (codec.kind == CodecKind::kTopK) {
    if (!(options.topk > 0 && options.topk <= 1))
      return fail(ErrorCode::kUserMistake,
                  "codec topk keeps a share of the elements above 0 and "
                  "at most 1, for example 0.01");
    codec.kept = static_cast<std::uint32_t>(std::ceil(options.topk * kWireTileElements));
  }
  return codec;
}

std::string to_string(const CodecSpec& codec) {
  std::string name(name_of(codec.kind));
  if (block_is_free(codec.kind)) name += "/" + std::to_string(codec.block);
  if (codec.kind == CodecKind::kTopK) name += "/" + std::to_string(codec.kept);
  if (codec.scales == ScaleKind::kBf16) name += "+bf16";
  return name;
}

bool is_valid(const CodecSpec& codec) {
  const bool sparse = codec.kind == CodecKind::kTopK;
  if (sparse != (codec.kept != 0) || codec.kept > kWireTileElements) return false;
  if (const auto spec = quant_spec(codec)) return kernels::is_valid(*spec);
  return codec.block == 0 && codec.scales == ScaleKind::kF32;
}

std::optional<kernels::QuantSpec> quant_spec(const CodecSpec& codec) {
  const auto blocks = blockwise(codec.kind);
  if (!blocks) return std::nullopt;
  return kernels::QuantSpec{.format = blocks->format, .block = codec.block, .scales = codec.scales};
}

CodecSpec codec_of_sum(const CodecSpec& topk, std::uint32_t parts, DType source) {
  SWARMLINE_CHECK(topk.kind == CodecKind::kTopK && parts >= 1);
  constexpr std::uint64_t kSparseBytes = sizeof(std::uint16_t) + sizeof(float);
  const std::uint64_t kept = std::uint64_t{topk.kept} * parts;
  const bool dense = kept * kSparseBytes >= std::uint64_t{kWireTileElements} * sizeof(float);
  if (dense || source == DType::kF64) return {.checksums = topk.checksums};
  return {.kind = CodecKind::kTopK,
          .kept = static_cast<std::uint32_t>(kept),
          .checksums = topk.checksums};
}

bool can_round_stochastically(const CodecSpec& codec) {
  const auto spec = quant_spec(codec);
  return spec && kernels::can_round_stochastically(spec->format);
}

}  // namespace swarmline
