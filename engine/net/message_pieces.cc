#include "engine/net/message_pieces.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/marks.h"

namespace swarmline {

std::vector<Frame> cut_into_pieces(Frame message) {
  SWARMLINE_CHECK(travels_in_pieces(message));
  SWARMLINE_MARK("message_pieces.cut");
  std::vector<Frame> pieces;
  for (std::size_t at = 0; at < message.meta.size(); at += kPieceBytes)
    pieces.push_back({.kind = message.kind,
                      .request = message.request,
                      .flags = message.flags | kFrameFlagMore,
                      .meta = message.meta.substr(at, kPieceBytes),
                      .payload = {}});
  pieces.back().flags = message.flags;
  pieces.back().payload = std::move(message.payload);
  return pieces;
}

std::uint64_t wire_bytes_in_pieces(const Frame& message) {
  const std::uint64_t pieces = (message.meta.size() + kPieceBytes - 1) / kPieceBytes;
  return message.wire_bytes() + kFrameHeaderBytes * (std::max<std::uint64_t>(pieces, 1) - 1);
}

bool PieceJoiner::goes_on_with(const Frame& frame) const {
  return begun_ && frame.kind == begun_->kind && frame.request == begun_->request &&
         (frame.flags & ~kFrameFlagMore) == begun_->flags;
}

Result<std::optional<Frame>> PieceJoiner::take(Frame frame, const FrameRoom& room) {
  const bool more = (frame.flags & kFrameFlagMore) != 0;
  if (!more && !begun_) return std::optional(std::move(frame));
  const bool goes_on = goes_on_with(frame);
  if (!more && !goes_on) return std::optional(std::move(frame));
  if (begun_ && !goes_on)
    return fail(ErrorCode::kCorrupt,
                fmt::format("a piece of a message of kind {} came within one of kind {}",
                            frame.kind, begun_->kind));
  held_bytes_ += frame.meta.size();
  if (held_bytes_ > room.meta_bytes_max) {
    SWARMLINE_MARK("message_pieces.no_room");
    return fail(ErrorCode::kCorrupt,
                fmt::format("a message of kind {} has more than {} bytes, which are taken here",
                            frame.kind, room.meta_bytes_max));
  }
  if (more) {
    if (frame.meta.size() < piece_bytes_min_ || !frame.payload.empty())
      return fail(
          ErrorCode::kCorrupt,
          fmt::format("a piece of a message of kind {} that is not the last has {} bytes "
                      "of meta and {} of payload, at least {} and none are taken",
                      frame.kind, frame.meta.size(), frame.payload_bytes(), piece_bytes_min_));
    if (!begun_) {
      begun_.emplace();
      begun_->kind = frame.kind;
      begun_->request = frame.request;
      begun_->flags = frame.flags & ~kFrameFlagMore;
    }
    pieces_.push_back(std::move(frame.meta));
    return std::optional<Frame>();
  }
  std::string meta;
  meta.reserve(held_bytes_);
  for (const std::string& piece : std::exchange(pieces_, {})) meta += piece;
  meta += frame.meta;
  frame.meta = std::move(meta);
  begun_.reset();
  held_bytes_ = 0;
  return std::optional(std::move(frame));
}

}  // namespace swarmline
