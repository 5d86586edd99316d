// Turns a stream of bytes into frames. Pure: the owner reads from its socket into space() and
// commits. The bytes of a payload go straight into the buffer that the frame will own; only what
// arrives together with a header (at most kStagingBytes) is copied once.
//   Ownership: frames are handed over; space() is valid until the next commit().
//   Thread:    one thread at a time.
//   Errors:    commit() returns kCorrupt for bytes that are no frame (see frame.h) and kRefused for
//              a payload that memory cannot hold; the stream has no next frame after that, and the
//              reader must not be used further.
//   Bounds:    one frame being filled (Limits), plus the frames that fit into the staging buffer;
//              between frames, after rest(), nothing. Memory for a meta that a header announces is
//              taken as it comes: at most Limits::frame_meta_ahead_bytes_max, or as much again as
//              has come. A frame for which there is no room() is no frame.
//   Wary:      of a stranger it takes one frame at a time, since each may change what it has room
//              for, and memory in steps of Limits::stranger_meta_bytes_max.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "engine/net/frame.h"

namespace swarmline {

class FrameReader {
 public:
  static constexpr std::size_t kStagingBytes = 64 * 1024;

  // Where the next bytes go, the first part first. The first may be empty, the second never is.
  std::array<MutableBytes, 2> space();
  // What is taken from now on, of each kind; `wary`: from a stranger.
  void take_only(FrameRoom (*room)(std::uint16_t kind), bool wary);
  // The first `count` bytes of space() were filled. Zero: goes on after next().
  Result<void> commit(std::size_t count);
  // The next complete frame, in order.
  std::optional<Frame> next();
  // The frame whose payload is being filled, if one is.
  std::optional<Arrival> arriving() const;
  // Nothing comes for now: its staging memory, where that holds no bytes, for the next reader that
  // has something to read, so that an idle stream costs little.
  Buffer rest();
  bool has_staging() const { return !staging_.empty(); }
  void lend(Buffer staging);  // of another reader, before space()
  // After next(): what came behind a stranger's frame was not looked at yet; commit(0) does.
  bool has_more() const { return stopped_ && ready_.empty(); }
  bool has_next() const { return !ready_.empty(); }
  // Memory taken for the frame that is being filled.
  std::size_t held_bytes() const { return meta_.size() + payload_.size(); }
  std::size_t filled_bytes() const { return filled_; }  // that have come
  // True between frames: an end of the stream here loses nothing.
  bool between_frames() const { return state_ == State::kHeader && begin_ == end_; }

 private:
  enum class State { kHeader, kMeta, kPayload };

  Result<void> parse();
  Result<void> begin_frame();
  Result<void> end_meta();
  void end_frame();
  bool sink_is_full() const;  // all of the meta or payload is here
  void make_room();           // for more of the meta
  MutableBytes sink_rest();   // what is still to be filled of the meta or payload
  std::size_t staged() const { return end_ - begin_; }

  FrameRoom (*room_)(std::uint16_t kind) = nullptr;  // none: as much as frames may have
  bool wary_ = false;
  bool stopped_ = false;  // behind a whole frame
  State state_ = State::kHeader;
  Buffer staging_;                   // none while it rests
  std::size_t begin_ = 0, end_ = 0;  // bytes of staging_ not parsed yet
  FrameHeader header_;
  std::string meta_;
  Buffer payload_;
  std::size_t filled_ = 0;  // of the meta or the payload
  std::list<Frame> ready_;
};

}  // namespace swarmline
