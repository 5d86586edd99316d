// One version of a stage's state sent to the coordinator for a checkpoint: copied between the jobs
// of the training, then sent piece by piece (CheckpointUpload).
//   Ownership: each upload owns its copy until it has ended.
//   Thread:    control thread.
//   Errors:    kIncompatible for another version than the one committed here. A copy that can't be
//              made is said to the coordinator; an upload that fails is logged.
//   Bounds:    one upload: another one ends the one before.
#pragma once

#include <string>

#include "base/callback_guard.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/common/stage_jobs.h"

namespace swarmline {

class StageSave {
 public:
  StageSave(StageContext& context, StageJobs& jobs) : context_(context), jobs_(jobs) {}

  Result<void> begin(std::uint64_t version, Version committed, const std::string& checkpoint);
  void silence() { guard_.drop_callbacks(); }

 private:
  void say_failed(const std::string& checkpoint, const Error& error);
  void upload(const std::string& checkpoint, bool whole, Buffer state);

  StageContext& context_;
  StageJobs& jobs_;
  CallbackGuard guard_;
};

}  // namespace swarmline
