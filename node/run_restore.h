// What a run gets back from object storage ([checkpoint] store).
//   Thread: blocking. Errors: those of CheckpointStore; kUserMistake as a sentence.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/config/run_config.h"
#include "node/object_store/checkpoint_store.h"
#include "node/run_folder.h"

namespace swarmline {

// Where the config names one.
std::optional<CheckpointStore> store_of(const RunConfig& config);

// The newest whole checkpoint with the optimizer's state that is newer than `than`, into the
// folder; its path. Damaged ones are passed over, with a warning. Empty: there is none.
Result<std::optional<std::string>> bring_newest(const CheckpointStore& store,
                                                const std::string& checkpoints_folder,
                                                const std::optional<CheckpointEntry>& than = {});

// Before the run folder is made: one that is new gets the newest checkpoint. `fresh`: a store that
// holds checkpoints of a run of that name is a mistake.
Result<void> restore_run(const RunConfig& config, const RunFolder& folder, bool fresh);

}  // namespace swarmline
