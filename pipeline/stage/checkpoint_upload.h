// Sends one stage file of a checkpoint to the coordinator, piece by piece, from a frozen copy of
// the parameters.
//   Thread: control thread. Errors: a refused or failed piece ends the upload with that error; the
//           coordinator decides.
//   Bounds: one piece of Limits::checkpoint_piece_bytes under way; each has the rpc deadline.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/base/bytes.h"
#include "engine/base/ids.h"
#include "engine/checkpoint/stage_file_image.h"
#include "engine/net/frame.h"

namespace swarmline {

class CheckpointUpload : public std::enable_shared_from_this<CheckpointUpload> {
 public:
  using Call = std::function<void(Frame, std::function<void(Result<Frame>)>)>;

  CheckpointUpload(Seat self, std::string checkpoint, const ParameterLayout& layout,
                   Buffer parameters, Call call, std::function<void(Result<void>)> on_done);
  void start();

 private:
  void send_next();

  Seat self_;
  std::string checkpoint_;
  Buffer parameters_;
  StageFileImage image_;
  Call call_;
  std::function<void(Result<void>)> on_done_;
  std::uint64_t offset_ = 0;
};

}  // namespace swarmline
