// Geometry of a wire buffer's tiles (compression/wire.h), for kernels that write and read them
// where they lie: [scales, padded to 64 bytes][codes], padded with room for 8 bytes of checksum to
// a multiple of 64. All but the last hold kTileElements elements.
#pragma once

#include <cstdint>

#include "kernels/element.h"
#include "kernels/quantize.h"

namespace swarmline::kernels::cuda {

inline constexpr std::uint64_t kTileElements = 65536;
inline constexpr std::uint64_t kTileAlignment = 64;
inline constexpr std::uint64_t kTileHashBytes = 8;

// log2 of a power of two; dividing 64 bits takes a device many instructions.
SWARMLINE_ELEMENT unsigned shift_of(std::uint32_t block) {
#if defined(__CUDA_ARCH__)
  return __ffs(static_cast<int>(block)) - 1;
#else
  return static_cast<unsigned>(__builtin_ctz(block));
#endif
}
SWARMLINE_ELEMENT std::uint64_t aligned_up(std::uint64_t bytes, std::uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}
// Of a tile of `count` elements.
SWARMLINE_ELEMENT std::uint64_t tile_scales_bytes(const QuantSpec& spec, std::uint64_t count) {
  const std::uint64_t blocks = (count + spec.block - 1) >> shift_of(spec.block);
  return aligned_up(blocks * (spec.scales == ScaleKind::kF32 ? 4 : 2), kTileAlignment);
}
SWARMLINE_ELEMENT std::uint64_t tile_codes_bytes(const QuantSpec& spec, std::uint64_t count) {
  switch (spec.format) {
    case QuantFormat::kH8:
      return aligned_up(count, spec.block);
    case QuantFormat::kH4:
      return aligned_up(count, spec.block) / 2;
    case QuantFormat::kInt4:
      return (count + 1) / 2;
    default:
      return count;
  }
}
SWARMLINE_ELEMENT std::uint64_t tile_bytes(const QuantSpec& spec, std::uint64_t count) {
  return aligned_up(tile_scales_bytes(spec, count) + tile_codes_bytes(spec, count) + kTileHashBytes,
                    kTileAlignment);
}

}  // namespace swarmline::kernels::cuda
