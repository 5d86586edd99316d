// A run's checkpoints in object storage, for people and programs: what `checkpoint` does with
// s3://BUCKET/PATH/RUN and gs://BUCKET/PATH/RUN.
//   Thread: blocking. Errors: those of CheckpointStore; kNotFound, kUserMistake as a sentence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/retention.h"
#include "node/object_store/checkpoint_store.h"
#include "tools/checkpoints/checkpoint_list.h"

namespace swarmline {

// Oldest first.
Result<std::vector<ListedCheckpoint>> list_stored(const CheckpointStore& store);
// Reads every byte, but of those that are not finished.
Result<std::vector<VerifiedCheckpoint>> verify_stored(const CheckpointStore& store);
// All of them, for a run that is to be forgotten; their names.
Result<std::vector<std::string>> remove_stored(const CheckpointStore& store, bool only_look);
// Those of a run folder that are whole and not there yet; their paths.
Result<std::vector<std::string>> push_checkpoints(const std::string& run_folder,
                                                  const CheckpointStore& store);
// The one of that step, or the newest whole one, into RUN_FOLDER/checkpoints; its path.
Result<std::string> pull_checkpoint(const CheckpointStore& store, const std::string& run_folder,
                                    std::optional<std::uint64_t> step);

}  // namespace swarmline
