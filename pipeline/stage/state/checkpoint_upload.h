// Saves one part of a stage for a checkpoint, piece by piece, from a copy of its state: sends it to
// the coordinator, or writes it where the coordinator sees it and says how far it is.
//   Thread: control thread; `work` makes, hashes and writes the pieces.
//   Errors: a piece that is not answered within the rpc deadline is said again, until it is or the
//           connection is gone; one that is refused ends it with that error, and one that can't be
//           written is said to the coordinator.
//   Bounds: one piece of Limits::checkpoint_piece_bytes under way.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/units.h"
#include "engine/checkpoint/sha256.h"
#include "engine/checkpoint/stage_file_image.h"
#include "engine/net/frame.h"
#include "engine/optimizer/saved_state.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

class CheckpointUpload : public std::enable_shared_from_this<CheckpointUpload> {
 public:
  using Call = std::function<void(Frame, std::function<void(Result<Frame>)>)>;
  // Runs `body` off the control thread, then `done` on it; neither, if the stage ends before.
  using Work = std::function<void(std::function<Result<void>()> body,
                                  std::function<void(Result<void>)> done)>;
  using Later = std::function<void(Duration wait, std::function<void()>)>;
  // In a body of `work`: appends to the part's file; the last time it is synced and in its place.
  using Write = std::function<Result<void>(BytesView bytes, bool last)>;
  struct Doors {
    Work work;
    Call call;
    Later later;
    Write write = {};  // empty: pieces are sent
  };
  struct Part {
    std::string checkpoint;
    std::uint32_t part = 0;
    std::uint32_t parts = 1;
  };

  // `state`: the bytes of its part (part_of()) of what `saved` describes.
  CheckpointUpload(Seat self, Part part, const SavedState& saved, Buffer state, Doors doors,
                   std::function<void(Result<void>)> on_done);
  void start();

 private:
  wire::CheckpointPiece piece_at(std::uint64_t offset) const;
  void send_next();
  void write_next();
  void send(std::uint64_t size, const SharedBytes& bytes);
  void call(const wire::CheckpointPiece& piece, const SharedBytes& bytes);
  void give_up(const Error& error);

  Seat self_;
  Part part_;
  Buffer state_;
  StageFileImage image_;
  // Of all that are written: made anew each time, a dozen of them stay with the C library.
  Buffer piece_;
  Sha256 hash_;  // of what was sent, and of what is sent next
  Doors doors_;
  std::function<void(Result<void>)> on_done_;
  std::uint64_t offset_ = 0;
};

}  // namespace swarmline
