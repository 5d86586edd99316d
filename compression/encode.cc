#include <algorithm>
#include <cstring>

#include "compression/codec.h"
#include "compression/wire.h"
#include "engine/base/check.h"
#include "engine/base/hash.h"
#include "kernels/kernels.h"

namespace swarmline {
namespace {

// fp64 is narrowed in pieces of this many elements on the stack; a multiple of every int8 block.
constexpr std::size_t kPiece = kInt8BlockMax;

struct TileOut {
  float* scales;
  std::byte* codes;
};

bool encode_fp32(const CodecSpec& codec, const float* values, std::size_t n, TileOut out) {
  switch (codec.kind) {
    case CodecKind::kNone:
      return kernels::copy_values(values, reinterpret_cast<float*>(out.codes), n);
    case CodecKind::kFp16:
      return kernels::fp32_to_fp16(values, reinterpret_cast<std::uint16_t*>(out.codes), n);
    case CodecKind::kBf16:
      return kernels::fp32_to_bf16(values, reinterpret_cast<std::uint16_t*>(out.codes), n);
    case CodecKind::kInt8:
      return kernels::quantize_int8(values, n, codec.block, out.scales,
                                    reinterpret_cast<std::int8_t*>(out.codes));
  }
  SWARMLINE_CHECK_MSG(false, "unknown codec");
}

bool encode_fp64(const CodecSpec& codec, const double* values, std::size_t n, TileOut out) {
  if (codec.kind == CodecKind::kNone)
    return kernels::copy_values(values, reinterpret_cast<double*>(out.codes), n);
  const std::size_t code_bytes = codec.kind == CodecKind::kInt8 ? 1 : 2;
  alignas(64) float piece[kPiece];
  bool non_finite = false;
  for (std::size_t begin = 0; begin < n; begin += kPiece) {
    const std::size_t size = std::min(kPiece, n - begin);
    kernels::fp64_to_fp32(values + begin, piece, size);
    float* const scales =
        codec.kind == CodecKind::kInt8 ? out.scales + begin / codec.block : nullptr;
    non_finite |= encode_fp32(codec, piece, size,
                              {.scales = scales, .codes = out.codes + begin * code_bytes});
  }
  return non_finite;
}

}  // namespace

Buffer encode(const CodecSpec& codec, BytesView values, DType source) {
  SWARMLINE_CHECK(source == DType::kF32 || source == DType::kF64);
  SWARMLINE_CHECK(codec.kind != CodecKind::kInt8 || is_int8_block(codec.block));
  const std::size_t element_bytes = size_bytes(source);
  SWARMLINE_CHECK(values.size() % element_bytes == 0);
  const std::uint64_t elements = values.size() / element_bytes;
  Buffer wire(encoded_bytes(codec, elements, source));

  bool non_finite = false;
  std::byte* out = wire.data() + kWireHeaderBytes;
  for (std::uint64_t begin = 0; begin < elements; begin += kWireTileElements) {
    const std::size_t n = std::min<std::uint64_t>(kWireTileElements, elements - begin);
    const TileShape shape = tile_shape(codec, n, source);
    const TileOut tile{.scales = reinterpret_cast<float*>(out), .codes = out + shape.scale_bytes};
    const std::byte* in = values.data() + begin * element_bytes;
    non_finite |= source == DType::kF32
                      ? encode_fp32(codec, reinterpret_cast<const float*>(in), n, tile)
                      : encode_fp64(codec, reinterpret_cast<const double*>(in), n, tile);
    const std::size_t used = shape.scale_bytes + shape.code_bytes;
    std::memset(out + used, 0, shape.padded_bytes() - used);
    const std::uint64_t hash = xxh3(BytesView(out, shape.padded_bytes()));
    std::memcpy(out + shape.padded_bytes(), &hash, sizeof hash);
    out += shape.total_bytes();
  }
  SWARMLINE_CHECK(out == wire.data() + wire.size());
  write_wire_header({.codec = codec,
                     .source = source,
                     .non_finite = non_finite,
                     .elements = elements,
                     .payload_bytes = wire.size() - kWireHeaderBytes},
                    wire.data());
  return wire;
}

}  // namespace swarmline
