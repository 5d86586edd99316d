// One version of a stage's state saved for a checkpoint: a part of it, or all, copied between the
// jobs of the training, then sent to the coordinator piece by piece, or written into the folder of
// checkpoints where this process sees that (CheckpointUpload).
//   Ownership: each upload owns its copy until it has ended.
//   Thread:    control thread.
//   Errors:    another version than the one committed here, or a copy that can't be made, is said
//              to the coordinator; an upload that fails is logged. None of it ends the peer.
//   Bounds:    one upload: another one ends the one before.
#pragma once

#include <string>

#include "base/callback_guard.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/common/stage_jobs.h"
#include "pipeline/stage/part_folder.h"
#include "pipeline/stage/state/checkpoint_upload.h"

namespace swarmline {

class StageSave {
 public:
  StageSave(StageContext& context, StageJobs& jobs) : context_(context), jobs_(jobs) {}

  void begin(const wire::SaveStage& save, Version committed);
  void silence() { guard_.drop_callbacks(); }

 private:
  SavedState saved_here() const;
  void say_failed(const wire::SaveStage& save, const std::string& why);
  void look_for_folder(const wire::SaveStage& save, Buffer state);
  CheckpointUpload::Write writer_of(const PartFolder::Place& place);
  void upload(const wire::SaveStage& save, Buffer state, CheckpointUpload::Write write);

  StageContext& context_;
  StageJobs& jobs_;
  CallbackGuard guard_;
};

}  // namespace swarmline
