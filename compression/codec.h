// How a tensor travels: one contiguous wire buffer.
//
// Wire buffer: a 64-byte little-endian header, then tiles of 65536 elements (the last: the rest).
//    0 u32 magic 'SWQ1'      4 u16 version (1)   6 u8 codec    7 u8 source dtype   8 u8 scale dtype
//    9 u8 flags (bit 0: non-finite values present)           10 u16 reserved 0  12 u32 int8 block
//   16 u32 tile elements    20 u32 reserved 0   24 u64 n      32 u64 payload bytes after the header
//   40..55 reserved 0       56 u64 XXH3-64 of bytes 0..55
//   Tile: [scales of its blocks][codes], zero-padded to 8 bytes, then u64 XXH3-64 of all before it.
// Codecs:
//   none        the source dtype as is
//   fp16, bf16 rounded to nearest even; overflow goes to infinity, NaN stays NaN
//   int8        per block: scale (fp32) = absmax / 127, code = nearest even of x / scale. A block
//               with NaN or infinity stores scale NaN and decodes to NaN throughout: never silently
//               a number. A block whose scale would be subnormal (absmax < 1.5e-36) is all zero.
//   An fp64 source is first rounded to fp32, except by none.
//   Shapes:    n elements of fp32 or fp64, any n >= 0, any alignment. Thread: any, stateless.
//   Errors:    decode returns kCorrupt (magic, version, lengths, checksum, non-finite values
//              without their flag) or kIncompatible (another n than asked for, or codec none with
//              another dtype); lengths are checked against the header and the buffer before
//              anything else is read, each tile before it is decoded. After an error `out` may be
//              partly written.
//   Bounds:    encoded_bytes() is exact; elements <= 2^60.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/bytes.h"
#include "engine/base/dtype.h"
#include "engine/base/result.h"

namespace swarmline {

enum class CodecKind : std::uint8_t { kNone = 0, kFp16 = 1, kBf16 = 2, kInt8 = 3 };

struct CodecSpec {
  CodecKind kind = CodecKind::kNone;
  std::uint32_t block = 256;  // int8 only, a power of two from 64 to 4096; 256 with other codecs
  bool operator==(const CodecSpec&) const = default;
};
// kUserMistake naming the known codecs and, where one is near, that one.
Result<CodecSpec> parse_codec(std::string_view name, std::uint32_t block);
std::string to_string(const CodecSpec& codec);

inline constexpr std::size_t kWireHeaderBytes = 64;
inline constexpr std::uint32_t kWireTileElements = 65536;

struct WireHeader {
  CodecSpec codec;
  DType source = DType::kF32;
  bool non_finite = false;
  std::uint64_t elements = 0;
  std::uint64_t payload_bytes = 0;  // after the header
};

std::uint64_t encoded_bytes(const CodecSpec& codec, std::uint64_t elements, DType source);
// `values` holds elements of `source` (kF32 or kF64). The flag says whether decoding will give a
// non-finite value.
Buffer encode(const CodecSpec& codec, BytesView values, DType source);
// `wire` is the whole buffer: its length is checked too.
Result<WireHeader> read_wire_header(BytesView wire);
// Decodes into `out`, which must hold exactly the header's elements of `target` (kF32 or kF64).
Result<void> decode(BytesView wire, DType target, MutableBytes out);

}  // namespace swarmline
