// What travels between processes: one frame = header + meta (a Protocol Buffers message) + payload
// (raw tensor bytes).
//
// Header, 40 bytes, little-endian:
//    0 u32 magic 'SWRM'   4 u16 version (1)   6 u16 kind
//    8 u64 request (0: not an rpc; replies echo it)
//   16 u32 meta_bytes    20 u32 flags        24 u64 payload_bytes
//   32 u32 meta_hash     36 u32 header_hash
// meta_hash and header_hash are the low halves of XXH3-64 over meta and over header bytes 0..35.
// The payload carries its own checksums (codec wire buffer, safetensors pieces), so that tensor
// bytes are not hashed twice.
// Flags: bit 0 = reply, bit 1 = reply carries an error (meta is then an ErrorReply).
//   Errors: decode_header returns kCorrupt for wrong magic, version, lengths over Limits, or a hash
//           that does not check.
//   Bounds: meta_bytes <= Limits::frame_meta_bytes_max,
//           payload_bytes <= Limits::frame_payload_bytes_max.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/result.h"
#include "base/units.h"

namespace swarmline {

inline constexpr std::uint32_t kFrameMagic = 0x4D525753;  // "SWRM" in file order
inline constexpr std::uint16_t kFrameVersion = 1;
inline constexpr std::size_t kFrameHeaderBytes = 40;
inline constexpr std::uint32_t kFrameFlagReply = 1;
inline constexpr std::uint32_t kFrameFlagError = 2;

struct FrameHeader {
  std::uint16_t kind = 0;
  std::uint64_t request = 0;
  std::uint32_t meta_bytes = 0;
  std::uint32_t flags = 0;
  std::uint64_t payload_bytes = 0;
  std::uint32_t meta_hash = 0;
};

std::array<std::byte, kFrameHeaderBytes> encode_header(const FrameHeader& header);
Result<FrameHeader> decode_header(BytesView bytes);  // bytes.size() == kFrameHeaderBytes
std::uint32_t hash_meta(BytesView meta);

// What an end takes of a frame of some kind.
struct FrameRoom {
  std::uint64_t meta_bytes_max = Limits::frame_meta_bytes_max;
  std::uint64_t payload_bytes_max = Limits::frame_payload_bytes_max;
};

// A frame in memory. The payload is a list of shared parts, sent one after the other without
// copying them first; a received frame has at most one part, 64-byte aligned.
struct Frame {
  std::uint16_t kind = 0;
  std::uint64_t request = 0;
  std::uint32_t flags = 0;
  std::string meta;
  std::vector<SharedBytes> payload;
  // Of a received frame: how long its payload's bytes took to arrive, from the first to the last;
  // 0 where they came at once. Their number over this time is what the link gave.
  Duration received_over{};

  std::uint64_t payload_bytes() const;
  std::uint64_t wire_bytes() const { return kFrameHeaderBytes + meta.size() + payload_bytes(); }
  // The header this frame travels under. A frame over the bounds above is a programmer's error
  // (CHECK).
  FrameHeader header() const;
  // Of a payload that is lent, wholly or in part, nothing is lent any more.
  void keep_payload();
  void hold_payload();  // the same, but for what a Lender takes back: SharedBytes::held()
  BytesView received_payload() const {
    return payload.empty() ? BytesView{} : payload.front().view();
  }
};

// A frame of which the payload is still on its way.
struct Arrival {
  std::uint16_t kind = 0;
  std::uint64_t request = 0;
  std::uint32_t flags = 0;
  std::string_view meta;
  BytesView arrived;  // the payload's first bytes; the same memory until the frame is delivered
  std::uint64_t payload_bytes = 0;  // of the whole payload
};

}  // namespace swarmline
