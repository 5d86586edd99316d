// Sends one stage file of a checkpoint to the coordinator, piece by piece, from a copy of its
// state.
//   Thread: control thread; `work` makes and hashes the pieces.
//   Errors: a piece that is not answered within the rpc deadline is sent again, until it is or the
//           connection is gone; one that is refused ends the upload with that error.
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
  using Work = std::function<void(std::function<Result<void>()> body, std::function<void()> done)>;

  using Later = std::function<void(Duration wait, std::function<void()>)>;
  struct Doors {
    Work work;
    Call call;
    Later later;
  };

  // `state`: the bytes that `saved` describes.
  CheckpointUpload(Seat self, std::string checkpoint, const SavedState& saved, Buffer state,
                   Doors doors, std::function<void(Result<void>)> on_done);
  void start();

 private:
  void send_next();
  void send(const SharedBytes& bytes);
  void call(const wire::CheckpointPiece& piece, const SharedBytes& bytes);

  Seat self_;
  std::string checkpoint_;
  Buffer state_;
  StageFileImage image_;
  Sha256 hash_;  // of what was sent, and of what is sent next
  Doors doors_;
  std::function<void(Result<void>)> on_done_;
  std::uint64_t offset_ = 0;
};

}  // namespace swarmline
