// Any bytes, cut anywhere: the reader answers with frames or an error, and what it accepts encodes
// to the same bytes. Every third input is a stranger's: nothing larger than it has room for is
// taken, nor memory for it, until one of its frames is believed. Frames in pieces are joined.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/check.h"
#include "engine/net/frame_reader.h"
#include "engine/net/message_pieces.h"

namespace {

using namespace swarmline;

constexpr std::uint16_t kBelieved = 10;
constexpr std::uint64_t kStrangersRoom = 100;
constexpr std::uint64_t kMessageRoom = 300;  // of one in pieces

FrameRoom room_of_stranger(std::uint16_t kind) {
  return {.meta_bytes_max = kind == kBelieved ? kStrangersRoom : 20, .payload_bytes_max = 0};
}

// The first byte sets how the rest is cut. Inputs rarely guess a hash, so every second input has
// its hashes corrected.
void correct_hashes(std::string& wire) {
  std::size_t at = 0;
  while (wire.size() - at >= kFrameHeaderBytes) {
    FrameHeader header;
    std::memcpy(&header.kind, wire.data() + at + 6, 2);
    std::memcpy(&header.request, wire.data() + at + 8, 8);
    header.meta_bytes = static_cast<std::uint8_t>(wire[at + 16]);
    header.flags = static_cast<std::uint8_t>(wire[at + 20]);
    header.payload_bytes = std::uint64_t{static_cast<std::uint8_t>(wire[at + 24])} *
                           (std::uint64_t{1} + static_cast<std::uint8_t>(wire[at + 25]));
    if (wire.size() - at - kFrameHeaderBytes >= header.meta_bytes) {
      header.meta_hash =
          hash_meta(as_bytes(wire).subspan(at + kFrameHeaderBytes, header.meta_bytes));
    }
    const auto bytes = encode_header(header);
    std::memcpy(wire.data() + at, bytes.data(), bytes.size());
    at += std::min<std::size_t>(kFrameHeaderBytes + header.meta_bytes + header.payload_bytes,
                                wire.size() - at);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  std::string wire(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) correct_hashes(wire);
  const std::size_t cut = 1 + data[0] * std::size_t{16};
  FrameReader reader;
  PieceJoiner joiner(1);
  bool wary = data[0] % 3 == 0;
  if (wary) reader.take_only(room_of_stranger, true);
  std::string read_back;
  std::size_t at = 0;
  bool good = true;
  while (good && at < wire.size()) {
    const auto space = reader.space();
    const std::size_t count = std::min({cut, wire.size() - at, space[0].size() + space[1].size()});
    const std::size_t first = std::min(count, space[0].size());
    if (first > 0) std::memcpy(space[0].data(), wire.data() + at, first);
    if (count > first) std::memcpy(space[1].data(), wire.data() + at + first, count - first);
    at += count;
    good = reader.commit(count).has_value();
    do {
      while (auto frame = reader.next()) {
        read_back += as_text(encode_header(frame->header()));
        read_back += frame->meta;
        read_back += as_text(frame->received_payload());
        const std::uint64_t meta_bytes = frame->meta.size();
        const bool more = (frame->flags & kFrameFlagMore) != 0;
        const auto joined = joiner.take(Frame(*frame), FrameRoom{.meta_bytes_max = kMessageRoom});
        SWARMLINE_CHECK(joiner.held_bytes() <= kMessageRoom || !joined);
        SWARMLINE_CHECK(!joined || joined->has_value() != more);
        SWARMLINE_CHECK(!joined || !*joined || (*joined)->meta.size() >= meta_bytes);
        if (!joined) joiner = PieceJoiner(1);
        if (!wary) continue;
        const FrameRoom room = room_of_stranger(frame->kind);
        SWARMLINE_CHECK(frame->meta.size() <= room.meta_bytes_max &&
                        frame->payload_bytes() <= room.payload_bytes_max);
        wary = frame->kind != kBelieved;
        if (!wary) reader.take_only(nullptr, false);
      }
      if (good && reader.has_more()) good = reader.commit(0).has_value();
    } while (good && (reader.has_more() || reader.has_next()));
    SWARMLINE_CHECK(!wary || reader.held_bytes() <= kStrangersRoom);
  }
  SWARMLINE_CHECK(read_back.size() <= wire.size() &&
                  wire.compare(0, read_back.size(), read_back) == 0);
  SWARMLINE_CHECK(!good || !reader.between_frames() || read_back.size() == wire.size());
  return 0;
}
