// A run's checkpoints/ folder: step-N/{manifest.json, stage-S.safetensors}. What is being written
// is step-N.TRY.partial and becomes step-N by one rename after everything was fsynced; what was
// found damaged is step-N.damaged.
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
  std::uint64_t era = 0;  // of a run that went back, the higher one is the newer
  std::uint64_t step = 0;
  std::string path;  // of step-N
};

std::string checkpoint_path(const std::string& checkpoints_folder, std::uint64_t step);
// One that is being written; `attempt` is its own for each try.
std::string partial_checkpoint_path(const std::string& checkpoints_folder, std::uint64_t step,
                                    std::uint64_t attempt);
// Whatever was being written and never was whole.
Result<void> remove_partial_checkpoints(const std::string& checkpoints_folder);
// Finished checkpoints (those with a manifest), oldest first; an absent folder has none.
Result<std::vector<CheckpointEntry>> list_checkpoints(const std::string& checkpoints_folder);
// The newest that is complete: manifest readable, every stage file there with its size. Damaged
// ones are passed over, with a warning in the log. Empty: there is none.
Result<std::optional<CheckpointEntry>> latest_checkpoint(const std::string& checkpoints_folder);
// Removes all but the newest `keep` of those that were set aside.
Result<void> remove_damaged_checkpoints(const std::string& checkpoints_folder, std::uint32_t keep);

// Its bytes are not what was written; not: it could not be read just now, or by this program.
bool is_damage(const Error& error);
// Puts step-N away as step-N.damaged: nobody takes it for a checkpoint any more.
Result<void> set_aside_damaged(const std::string& path);

enum class Verify : std::uint8_t { kSizes, kContents };  // kContents reads every byte (SHA-256)
// Reads and checks step-N/; contents of several files at a time.
Result<Manifest> read_checkpoint(const std::string& path, Verify verify);

}  // namespace swarmline
