// The wire buffer's geometry, shared by encode, decode and the device's kernels. The format itself
// is described in codec.h.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "compression/codec.h"

namespace swarmline {

static_assert(std::endian::native == std::endian::little,
              "wire buffers are written as memory holds them");

inline constexpr std::uint32_t kWireMagic = 0x31515753;  // 'SWQ1'
inline constexpr std::uint16_t kWireVersion = 2;
inline constexpr std::size_t kWireTileHashBytes = 8;
inline constexpr std::size_t kWireAlignment = 64;

struct TileShape {
  std::size_t scale_bytes = 0;  // or positions, without their padding
  std::size_t code_bytes = 0;
  std::size_t codes_at() const { return round_up(scale_bytes); }
  std::size_t total_bytes() const { return round_up(codes_at() + code_bytes + kWireTileHashBytes); }
  std::size_t hash_at() const { return total_bytes() - kWireTileHashBytes; }  // hashes all before

 private:
  static std::size_t round_up(std::size_t bytes) {
    return (bytes + kWireAlignment - 1) / kWireAlignment * kWireAlignment;
  }
};
// Shape of a tile of `elements` <= kWireTileElements.
TileShape tile_shape(const CodecSpec& codec, std::size_t elements, DType source);

struct Tile {
  TileShape shape;
  std::size_t at = 0;       // in the buffer
  std::uint64_t first = 0;  // element
  std::size_t elements = 0;
};
// The tile of a buffer of `elements` that begins with element `first`, at byte `at`.
inline Tile tile_from(const CodecSpec& codec, std::uint64_t elements, DType source,
                      std::uint64_t first, std::size_t at) {
  const std::size_t n = std::min<std::uint64_t>(kWireTileElements, elements - first);
  return {.shape = tile_shape(codec, n, source), .at = at, .first = first, .elements = n};
}
// Moves on to the next tile, from a fresh Tile to the first one. False: there is none.
inline bool next_tile(const CodecSpec& codec, std::uint64_t elements, DType source, Tile& tile) {
  const bool fresh = tile.elements == 0;
  const std::uint64_t first = tile.first + tile.elements;
  if (first >= elements) return false;
  tile = tile_from(codec, elements, source, first,
                   fresh ? kWireHeaderBytes : tile.at + tile.shape.total_bytes());
  return true;
}
inline bool next_tile(const WireHeader& header, Tile& tile) {
  return next_tile(header.codec, header.elements, header.source, tile);
}

// topk: how many of a tile's elements travel.
inline std::size_t kept_of_tile(const CodecSpec& codec, std::size_t elements) {
  return (std::uint64_t{codec.kept} * elements + kWireTileElements - 1) / kWireTileElements;
}

// Writes the 64 bytes of `header`.
void write_wire_header(const WireHeader& header, std::byte* out);
// Zeroes what lies between scales, codes and hash, and writes the hash: 0 for a codec without.
void seal_tile(const CodecSpec& codec, const TileShape& shape, std::byte* tile);
// The same for a tile without scales whose codes lie elsewhere: `end` is what follows them.
void seal_tile_end(const CodecSpec& codec, BytesView codes, MutableBytes end);
// The same for every tile of a buffer whose scales and codes a device wrote, and the header.
void seal_wire(const WireHeader& header, MutableBytes wire);

// What decode() checks: that the buffer holds what fills `out_bytes` of `target`; each tile's
// checksum before it is decoded; that values which came out not finite were announced.
Result<void> check_target(const WireHeader& header, DType target, std::size_t out_bytes);
Result<void> check_hash(const CodecSpec& codec, const Tile& tile, BytesView wire);
// What can be checked of codes where they lie: topk's positions, and that values of codec `none`
// which are not finite were announced.
Result<void> check_codes(const WireHeader& header, const Tile& tile, BytesView wire);
Result<void> check_announced(const WireHeader& header, DType target, bool non_finite);

// One tile's scales (or positions) and codes, from and to `n` <= kWireTileElements values. Both
// return whether a value is not finite; decode_tile() nothing where positions do not check.
bool any_non_finite(DType dtype, const std::byte* values, std::size_t n);
bool encode_tile(const CodecSpec& codec, DType source, const std::byte* values, std::size_t n,
                 const kernels::StochasticKey* key, std::byte* scales, std::byte* codes);
std::optional<bool> decode_tile(const CodecSpec& codec, const std::byte* scales,
                                const std::byte* codes, std::size_t n, DType target,
                                std::byte* values);

}  // namespace swarmline
