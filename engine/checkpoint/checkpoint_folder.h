// A run's checkpoints/ folder: step-N/{manifest.json, stage-S.safetensors}. What is being written
// is step-N.partial and becomes step-N by one rename after everything was fsynced.
//   Thread: any, one call at a time. Blocking. Errors: kNotFound, kCorrupt, kIncompatible, kIo.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/checkpoint/manifest.h"

namespace swarmline {

struct CheckpointEntry {
  std::uint64_t step = 0;
  std::string path;  // of step-N
};

std::string checkpoint_path(const std::string& checkpoints_folder, std::uint64_t step);
// Finished checkpoints (those with a manifest), oldest step first; an absent folder has none.
Result<std::vector<CheckpointEntry>> list_checkpoints(const std::string& checkpoints_folder);
// The newest that is complete: manifest readable, every stage file there with its size. Damaged
// ones are passed over, with a warning in the log. Empty: there is none.
Result<std::optional<CheckpointEntry>> latest_checkpoint(const std::string& checkpoints_folder);
// Removes all but the newest `keep` (>= 1).
Result<void> keep_newest_checkpoints(const std::string& checkpoints_folder, std::uint32_t keep);

enum class Verify : std::uint8_t { kSizes, kContents };  // kContents reads every byte (SHA-256)
// Reads and checks step-N/.
Result<Manifest> read_checkpoint(const std::string& path, Verify verify);

}  // namespace swarmline
