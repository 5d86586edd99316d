// Messages with a long meta travel in pieces: frames of one kind, request and flags, all but the
// last with kFrameFlagMore. Whole frames of other kinds may go between them.
//   What:      cuts at the sender, joins at the receiver. The payload comes with the last piece.
//   Ownership: frames are handed over. Thread: one at a time. Pure.
//   Errors:    kCorrupt for a piece that does not go on with the message that was begun, and for a
//              message beyond the room for its kind: nothing more can be joined.
//   Bounds:    a piece has kPieceBytes of meta when it is sent, and is taken with kPieceBytesMin
//              (but for the last) to kFrameMetaBytesTaken; one message is joined at a time, of
//              FrameRoom::meta_bytes_max.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/net/frame.h"

namespace swarmline {

// Of a message's meta, in a frame: what is sent, and what a reader takes.
inline constexpr std::uint64_t kPieceBytes = 256 * kKiB;
inline constexpr std::uint64_t kPieceBytesMin = 64 * kKiB;
inline constexpr std::uint64_t kFrameMetaBytesTaken = 4 * kMiB;

inline constexpr std::uint32_t kFrameFlagMore = 4;  // beside those of frame.h
// Never on the wire: its sender lets it overtake what waits for the pieces of a message, because
// its place among others does not matter. In one piece itself.
inline constexpr std::uint32_t kFrameFlagAhead = 8;

inline bool travels_in_pieces(const Frame& message) {
  return message.meta.size() > kPieceBytes;
}
inline bool goes_ahead(const Frame& message) {
  return (message.flags & kFrameFlagAhead) != 0 && !travels_in_pieces(message);
}
// At least two, in the order in which they are to be sent.
std::vector<Frame> cut_into_pieces(Frame message);
// What it takes on the wire, however it travels.
std::uint64_t wire_bytes_in_pieces(const Frame& message);

class PieceJoiner {
 public:
  explicit PieceJoiner(std::uint64_t piece_bytes_min = kPieceBytesMin)
      : piece_bytes_min_(piece_bytes_min) {}

  // Frames in the order in which they came. Nothing: it was a piece, and more of its message
  // follows.
  Result<std::optional<Frame>> take(Frame frame, const FrameRoom& room);
  bool has_begun() const { return begun_.has_value(); }
  std::uint64_t held_bytes() const { return held_bytes_; }

 private:
  bool goes_on_with(const Frame& frame) const;

  std::uint64_t piece_bytes_min_;
  std::optional<Frame> begun_;       // without its meta
  std::vector<std::string> pieces_;  // of that, so far
  std::uint64_t held_bytes_ = 0;
};

}  // namespace swarmline
