#include "compression/wire.h"

#include <cstring>

#include "engine/base/check.h"
#include "engine/base/hash.h"

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
  kReserved1At = 20,
  kElementsAt = 24,
  kPayloadAt = 32,
  kReserved2At = 40,
  kHashAt = 56,
};
constexpr std::uint8_t kNonFiniteFlag = 1;

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
  std::uint64_t any =
      get<std::uint16_t>(header, kReserved0At) | get<std::uint32_t>(header, kReserved1At);
  for (std::size_t at = kReserved2At; at < kHashAt; ++at)
    any |= std::to_integer<std::uint64_t>(header[at]);
  return any == 0;
}

Result<WireHeader> parse_fields(BytesView wire) {
  const auto kind = get<std::uint8_t>(wire, kCodecAt);
  const auto source = get<std::uint8_t>(wire, kSourceAt);
  const auto flags = get<std::uint8_t>(wire, kFlagsAt);
  const auto block = get<std::uint32_t>(wire, kBlockAt);
  if (kind > static_cast<std::uint8_t>(CodecKind::kInt8))
    return corrupt("unknown codec " + std::to_string(kind));
  WireHeader header;
  header.codec.kind = static_cast<CodecKind>(kind);
  if (source > static_cast<std::uint8_t>(DType::kF64))
    return corrupt("source is neither fp32 nor fp64");
  header.source = static_cast<DType>(source);
  if (get<std::uint8_t>(wire, kScaleAt) != static_cast<std::uint8_t>(DType::kF32))
    return corrupt("unknown scale type");
  if ((flags & ~kNonFiniteFlag) != 0 || !reserved_is_zero(wire))
    return corrupt("reserved bits are set");
  header.non_finite = (flags & kNonFiniteFlag) != 0;
  if (header.codec.kind == CodecKind::kInt8) {
    if (!is_int8_block(block)) return corrupt("int8 block of " + std::to_string(block));
    header.codec.block = block;
  } else if (block != 0) {
    return corrupt("a block where the codec has none");
  }
  if (get<std::uint32_t>(wire, kTileAt) != kWireTileElements) return corrupt("another tile size");
  header.elements = get<std::uint64_t>(wire, kElementsAt);
  header.payload_bytes = get<std::uint64_t>(wire, kPayloadAt);
  return header;
}

}  // namespace

TileShape tile_shape(const CodecSpec& codec, std::size_t elements, DType source) {
  switch (codec.kind) {
    case CodecKind::kNone:
      return {.code_bytes = elements * size_bytes(source)};
    case CodecKind::kFp16:
    case CodecKind::kBf16:
      return {.code_bytes = elements * 2};
    case CodecKind::kInt8:
      return {.scale_bytes = (elements + codec.block - 1) / codec.block * sizeof(float),
              .code_bytes = elements};
  }
  SWARMLINE_CHECK_MSG(false, "unknown codec");
}

std::uint64_t encoded_bytes(const CodecSpec& codec, std::uint64_t elements, DType source) {
  const std::uint64_t full_tiles = elements / kWireTileElements;
  const std::uint64_t rest = elements % kWireTileElements;
  return kWireHeaderBytes +
         full_tiles * tile_shape(codec, kWireTileElements, source).total_bytes() +
         (rest == 0 ? 0 : tile_shape(codec, rest, source).total_bytes());
}

void write_wire_header(const WireHeader& header, std::byte* out) {
  std::memset(out, 0, kWireHeaderBytes);
  put(out, kMagicAt, kWireMagic);
  put(out, kVersionAt, kWireVersion);
  put(out, kCodecAt, static_cast<std::uint8_t>(header.codec.kind));
  put(out, kSourceAt, static_cast<std::uint8_t>(header.source));
  put(out, kScaleAt, static_cast<std::uint8_t>(DType::kF32));
  put(out, kFlagsAt, header.non_finite ? kNonFiniteFlag : std::uint8_t{0});
  put(out, kBlockAt, header.codec.kind == CodecKind::kInt8 ? header.codec.block : std::uint32_t{0});
  put(out, kTileAt, kWireTileElements);
  put(out, kElementsAt, header.elements);
  put(out, kPayloadAt, header.payload_bytes);
  put(out, kHashAt, header_hash(out));
}

Result<WireHeader> read_wire_header(BytesView wire) {
  if (wire.size() < kWireHeaderBytes) return corrupt("shorter than its header");
  if (get<std::uint32_t>(wire, kMagicAt) != kWireMagic) return corrupt("wrong magic");
  if (get<std::uint64_t>(wire, kHashAt) != header_hash(wire.data()))
    return corrupt("header checksum");
  const auto version = get<std::uint16_t>(wire, kVersionAt);
  if (version != kWireVersion)
    return corrupt("version " + std::to_string(version) + ", this is version 1");
  auto header = parse_fields(wire);
  if (!header) return header;
  // Every codec spends a byte an element or more, so that this also keeps encoded_bytes() from
  // overflowing.
  if (header->payload_bytes != wire.size() - kWireHeaderBytes ||
      header->elements > header->payload_bytes ||
      encoded_bytes(header->codec, header->elements, header->source) != wire.size()) {
    return corrupt("its length is not that of " + std::to_string(header->elements) + " elements");
  }
  return header;
}

}  // namespace swarmline
