#include <algorithm>
#include <cstring>

#include "compression/codec.h"
#include "compression/wire.h"
#include "engine/base/check.h"
#include "engine/base/hash.h"
#include "kernels/kernels.h"

namespace swarmline {
namespace {

// fp64 targets are widened from pieces of this many elements on the stack; a multiple of every int8
// block.
constexpr std::size_t kPiece = kInt8BlockMax;

struct TileIn {
  const float* scales;
  const std::byte* codes;
};

// All return whether a value is not finite.
bool decode_fp32(const CodecSpec& codec, TileIn in, std::size_t n, float* values) {
  switch (codec.kind) {
    case CodecKind::kNone:
      return kernels::copy_values(reinterpret_cast<const float*>(in.codes), values, n);
    case CodecKind::kFp16:
      return kernels::fp16_to_fp32(reinterpret_cast<const std::uint16_t*>(in.codes), values, n);
    case CodecKind::kBf16:
      return kernels::bf16_to_fp32(reinterpret_cast<const std::uint16_t*>(in.codes), values, n);
    case CodecKind::kInt8:
      return kernels::dequantize_int8(in.scales, reinterpret_cast<const std::int8_t*>(in.codes), n,
                                      codec.block, values);
  }
  SWARMLINE_CHECK_MSG(false, "unknown codec");
}

bool decode_fp64(const CodecSpec& codec, TileIn in, std::size_t n, double* values) {
  if (codec.kind == CodecKind::kNone) {
    return kernels::copy_values(reinterpret_cast<const double*>(in.codes), values, n);
  }
  const std::size_t code_bytes = codec.kind == CodecKind::kInt8 ? 1 : 2;
  alignas(64) float piece[kPiece];
  bool non_finite = false;
  for (std::size_t begin = 0; begin < n; begin += kPiece) {
    const std::size_t size = std::min(kPiece, n - begin);
    const float* const scales =
        codec.kind == CodecKind::kInt8 ? in.scales + begin / codec.block : nullptr;
    non_finite |=
        decode_fp32(codec, {.scales = scales, .codes = in.codes + begin * code_bytes}, size, piece);
    kernels::fp32_to_fp64(piece, values + begin, size);
  }
  return non_finite;
}

Result<void> check_target(const WireHeader& header, DType target, std::size_t out_bytes) {
  if (header.codec.kind == CodecKind::kNone && header.source != target) {
    return fail(ErrorCode::kIncompatible,
                "wire buffer: codec none carries another element type than is asked for");
  }
  const std::uint64_t expected = out_bytes / size_bytes(target);
  if (out_bytes % size_bytes(target) != 0 || header.elements != expected) {
    return fail(ErrorCode::kIncompatible, "wire buffer: holds " + std::to_string(header.elements) +
                                              " elements, expected " + std::to_string(expected));
  }
  return {};
}

}  // namespace

Result<void> decode(BytesView wire, DType target, MutableBytes out) {
  SWARMLINE_CHECK(target == DType::kF32 || target == DType::kF64);
  const auto header = read_wire_header(wire);
  if (!header) return std::unexpected(header.error());
  SWARMLINE_TRY(check_target(*header, target, out.size()));

  const std::byte* in = wire.data() + kWireHeaderBytes;
  for (std::uint64_t begin = 0; begin < header->elements; begin += kWireTileElements) {
    const std::size_t n = std::min<std::uint64_t>(kWireTileElements, header->elements - begin);
    const TileShape shape = tile_shape(header->codec, n, header->source);
    std::uint64_t hash = 0;
    std::memcpy(&hash, in + shape.padded_bytes(), sizeof hash);
    if (hash != xxh3(BytesView(in, shape.padded_bytes()))) {
      return fail(ErrorCode::kCorrupt,
                  "wire buffer: checksum of tile " + std::to_string(begin / kWireTileElements));
    }
    const TileIn tile{.scales = reinterpret_cast<const float*>(in),
                      .codes = in + shape.scale_bytes};
    std::byte* const to = out.data() + begin * size_bytes(target);
    const bool non_finite =
        target == DType::kF32 ? decode_fp32(header->codec, tile, n, reinterpret_cast<float*>(to))
                              : decode_fp64(header->codec, tile, n, reinterpret_cast<double*>(to));
    if (non_finite && !header->non_finite) {
      return fail(ErrorCode::kCorrupt, "wire buffer: non-finite values without their flag");
    }
    in += shape.total_bytes();
  }
  return {};
}

}  // namespace swarmline
