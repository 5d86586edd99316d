#include "compression/wire.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"

namespace swarmline {
namespace {

// Offsets of the header's fields; the rest is zero.
enum Offset : std::size_t {
  kMagicAt = 0,
  kVersionAt = 4,
  kCodecAt = 6,
  kSourceAt = 7,
  kScaleAt = 8,
  kFlagsAt = 9,
  kReserved0At = 10,
  kBlockAt = 12,
  kTileAt = 16,
  kKeptAt = 20,
  kElementsAt = 24,
  kPayloadAt = 32,
  kReserved2At = 40,
  kHashAt = 56,
};
constexpr std::uint8_t kNonFiniteFlag = 1;
constexpr std::uint8_t kStochasticFlag = 2;
constexpr std::uint8_t kNoChecksumsFlag = 4;
constexpr std::uint8_t kFlags = kNonFiniteFlag | kStochasticFlag | kNoChecksumsFlag;

template <typename T>
void put(std::byte* header, Offset at, T value) {
  std::memcpy(header + at, &value, sizeof value);
}
template <typename T>
T get(BytesView header, Offset at) {
  T value;
  std::memcpy(&value, header.data() + at, sizeof value);
  return value;
}

std::uint64_t header_hash(const std::byte* header) {
  return xxh3(BytesView(header, kHashAt));
}

std::unexpected<Error> corrupt(std::string what) {
  return fail(ErrorCode::kCorrupt, "wire buffer: " + what);
}

bool reserved_is_zero(BytesView header) {
  std::uint64_t any = get<std::uint16_t>(header, kReserved0At);
  for (std::size_t at = kReserved2At; at < kHashAt; ++at)
    any |= std::to_integer<std::uint64_t>(header[at]);
  return any == 0;
}

std::optional<DType> scale_dtype(std::uint8_t value) {
  if (value == static_cast<std::uint8_t>(DType::kF32)) return DType::kF32;
  if (value == static_cast<std::uint8_t>(DType::kBF16)) return DType::kBF16;
  return std::nullopt;
}

Result<CodecSpec> parse_codec_fields(BytesView wire) {
  const auto kind = get<std::uint8_t>(wire, kCodecAt);
  if (kind >= kCodecKinds) return corrupt("unknown codec " + std::to_string(kind));
  const auto scales = scale_dtype(get<std::uint8_t>(wire, kScaleAt));
  if (!scales) return corrupt("unknown scale type");
  CodecSpec codec{
      .kind = static_cast<CodecKind>(kind),
      .block = get<std::uint32_t>(wire, kBlockAt),
      .scales = *scales == DType::kBF16 ? kernels::ScaleKind::kBf16 : kernels::ScaleKind::kF32,
      .kept = get<std::uint32_t>(wire, kKeptAt),
      .checksums = (get<std::uint8_t>(wire, kFlagsAt) & kNoChecksumsFlag) == 0};
  if (!is_valid(codec))
    return corrupt("codec " + std::to_string(kind) + " with a block of " +
                   std::to_string(codec.block) + ", scale type " +
                   std::to_string(get<std::uint8_t>(wire, kScaleAt)) + " and " +
                   std::to_string(codec.kept) + " elements kept");
  return codec;
}

Result<WireHeader> parse_fields(BytesView wire) {
  const auto source = get<std::uint8_t>(wire, kSourceAt);
  const auto flags = get<std::uint8_t>(wire, kFlagsAt);
  WireHeader header;
  auto codec = parse_codec_fields(wire);
  if (!codec) return std::unexpected(codec.error());
  header.codec = *codec;
  if (source > static_cast<std::uint8_t>(DType::kBF16))
    return corrupt("source is no floating-point type");
  header.source = static_cast<DType>(source);
  if ((flags & ~kFlags) != 0 || !reserved_is_zero(wire)) return corrupt("reserved bits are set");
  header.non_finite = (flags & kNonFiniteFlag) != 0;
  header.stochastic = (flags & kStochasticFlag) != 0;
  if (header.stochastic && !can_round_stochastically(header.codec))
    return corrupt("a codec that never rounds stochastically says it did");
  if (get<std::uint32_t>(wire, kTileAt) != kWireTileElements) return corrupt("another tile size");
  header.elements = get<std::uint64_t>(wire, kElementsAt);
  header.payload_bytes = get<std::uint64_t>(wire, kPayloadAt);
  return header;
}

}  // namespace

TileShape tile_shape(const CodecSpec& codec, std::size_t elements, DType source) {
  if (const auto spec = quant_spec(codec)) {
    return {
        .scale_bytes = kernels::quant_blocks(*spec, elements) * kernels::scale_bytes(spec->scales),
        .code_bytes = kernels::code_bytes(*spec, elements)};
  }
  switch (codec.kind) {
    case CodecKind::kNone:
      return {.code_bytes = elements * size_bytes(source)};
    case CodecKind::kFp16:
    case CodecKind::kBf16:
      return {.code_bytes = elements * 2};
    case CodecKind::kTopK: {
      const std::size_t kept = kept_of_tile(codec, elements);
      return {.scale_bytes = kept * sizeof(std::uint16_t), .code_bytes = kept * sizeof(float)};
    }
    default:
      SWARMLINE_CHECK_MSG(false, "unknown codec");
  }
}

std::uint64_t encoded_bytes(const CodecSpec& codec, std::uint64_t elements, DType source) {
  const std::uint64_t full_tiles = elements / kWireTileElements;
  const std::uint64_t rest = elements % kWireTileElements;
  return kWireHeaderBytes +
         full_tiles * tile_shape(codec, kWireTileElements, source).total_bytes() +
         (rest == 0 ? 0 : tile_shape(codec, rest, source).total_bytes());
}

void write_wire_header(const WireHeader& header, std::byte* out) {
  const auto scales = header.codec.scales == kernels::ScaleKind::kBf16 ? DType::kBF16 : DType::kF32;
  std::memset(out, 0, kWireHeaderBytes);
  put(out, kMagicAt, kWireMagic);
  put(out, kVersionAt, kWireVersion);
  put(out, kCodecAt, static_cast<std::uint8_t>(header.codec.kind));
  put(out, kSourceAt, static_cast<std::uint8_t>(header.source));
  put(out, kScaleAt, static_cast<std::uint8_t>(scales));
  put(out, kFlagsAt,
      static_cast<std::uint8_t>((header.non_finite ? kNonFiniteFlag : 0) |
                                (header.stochastic ? kStochasticFlag : 0) |
                                (header.codec.checksums ? 0 : kNoChecksumsFlag)));
  put(out, kBlockAt, header.codec.block);
  put(out, kTileAt, kWireTileElements);
  put(out, kKeptAt, header.codec.kept);
  put(out, kElementsAt, header.elements);
  put(out, kPayloadAt, header.payload_bytes);
  put(out, kHashAt, header_hash(out));
}

void seal_tile(const CodecSpec& codec, const TileShape& shape, std::byte* tile) {
  std::memset(tile + shape.scale_bytes, 0, shape.codes_at() - shape.scale_bytes);
  const std::size_t end = shape.codes_at() + shape.code_bytes;
  std::memset(tile + end, 0, shape.hash_at() - end);
  const std::uint64_t hash = codec.checksums ? xxh3(BytesView(tile, shape.hash_at())) : 0;
  std::memcpy(tile + shape.hash_at(), &hash, sizeof hash);
}

void seal_tile_end(const CodecSpec& codec, BytesView codes, MutableBytes end) {
  std::memset(end.data(), 0, end.size());
  const std::size_t hash_at = end.size() - kWireTileHashBytes;
  const std::uint64_t hash = codec.checksums ? xxh3_of_both(codes, end.first(hash_at)) : 0;
  std::memcpy(end.data() + hash_at, &hash, sizeof hash);
}

void seal_wire(const WireHeader& header, MutableBytes wire) {
  SWARMLINE_CHECK(wire.size() == encoded_bytes(header.codec, header.elements, header.source));
  for (Tile tile; next_tile(header, tile);)
    seal_tile(header.codec, tile.shape, wire.data() + tile.at);
  write_wire_header(header, wire.data());
}

Result<WireHeader> read_wire_header(BytesView beginning, std::uint64_t wire_bytes) {
  if (beginning.size() < kWireHeaderBytes || wire_bytes < beginning.size())
    return corrupt("shorter than its header");
  if (get<std::uint32_t>(beginning, kMagicAt) != kWireMagic) return corrupt("wrong magic");
  if (get<std::uint64_t>(beginning, kHashAt) != header_hash(beginning.data()))
    return corrupt("header checksum");
  const auto version = get<std::uint16_t>(beginning, kVersionAt);
  if (version != kWireVersion)
    return corrupt("version " + std::to_string(version) + ", this is version " +
                   std::to_string(kWireVersion));
  auto header = parse_fields(beginning);
  if (!header) return header;
  // Every tile has 64 bytes or more, so that this also keeps encoded_bytes() from overflowing.
  if (header->payload_bytes != wire_bytes - kWireHeaderBytes ||
      header->elements / kWireTileElements > header->payload_bytes / kWireAlignment ||
      encoded_bytes(header->codec, header->elements, header->source) != wire_bytes) {
    return corrupt("its length is not that of " + std::to_string(header->elements) + " elements");
  }
  return header;
}

Result<WireHeader> read_wire_header(BytesView wire) {
  return read_wire_header(wire, wire.size());
}

}  // namespace swarmline
