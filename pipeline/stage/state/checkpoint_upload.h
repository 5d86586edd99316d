// Sends one stage file of a checkpoint to the coordinator, piece by piece, from a copy of its
// state.
//   Thread: control thread; `work` makes and hashes the pieces.
//   Errors: a refused or failed piece ends the upload with that error; the coordinator decides.
//   Bounds: one piece of Limits::checkpoint_piece_bytes under way; each has the rpc deadline.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/ids.h"
#include "engine/checkpoint/sha256.h"
#include "engine/checkpoint/stage_file_image.h"
#include "engine/net/frame.h"
#include "engine/optimizer/saved_state.h"

namespace swarmline {

class CheckpointUpload : public std::enable_shared_from_this<CheckpointUpload> {
 public:
  using Call = std::function<void(Frame, std::function<void(Result<Frame>)>)>;
  // Runs `body` off the control thread, then `done` on it; neither, if the stage ends before.
  using Work = std::function<void(std::function<Result<void>()> body, std::function<void()> done)>;

  // `state`: the bytes that `saved` describes.
  CheckpointUpload(Seat self, std::string checkpoint, const SavedState& saved, Buffer state,
                   Work work, Call call, std::function<void(Result<void>)> on_done);
  void start();

 private:
  void send_next();
  void send(const SharedBytes& bytes);

  Seat self_;
  std::string checkpoint_;
  Buffer state_;
  StageFileImage image_;
  Sha256 hash_;  // of what was sent, and of what is sent next
  Work work_;
  Call call_;
  std::function<void(Result<void>)> on_done_;
  std::uint64_t offset_ = 0;
};

}  // namespace swarmline
