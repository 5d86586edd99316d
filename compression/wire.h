// The wire buffer's geometry, shared by encode and decode. The format itself is described in
// codec.h.
#pragma once

#include <bit>
#include <cstdint>

#include "compression/codec.h"

namespace swarmline {

static_assert(std::endian::native == std::endian::little,
              "wire buffers are written as memory holds them");

inline constexpr std::uint32_t kWireMagic = 0x31515753;  // 'SWQ1'
inline constexpr std::uint16_t kWireVersion = 1;
inline constexpr std::size_t kWireTileHashBytes = 8;
inline constexpr std::uint32_t kInt8BlockMin = 64;
inline constexpr std::uint32_t kInt8BlockMax = 4096;

inline bool is_int8_block(std::uint32_t block) {
  return std::has_single_bit(block) && block >= kInt8BlockMin && block <= kInt8BlockMax;
}

struct TileShape {
  std::size_t scale_bytes = 0;
  std::size_t code_bytes = 0;
  std::size_t padded_bytes() const {
    return (scale_bytes + code_bytes + 7) / 8 * 8;
  }  // what the hash covers
  std::size_t total_bytes() const { return padded_bytes() + kWireTileHashBytes; }
};
// Shape of a tile of `elements` <= kWireTileElements.
TileShape tile_shape(const CodecSpec& codec, std::size_t elements, DType source);

// Writes the 64 bytes of `header`.
void write_wire_header(const WireHeader& header, std::byte* out);

}  // namespace swarmline
