// The checkpoints of a run folder, for a run that goes back to one.
//   Thread: the coordinator's control thread. open_newest() reads every byte of what it opens.
//   Errors: those of CheckpointReader.
#pragma once

#include <optional>
#include <string>

#include "engine/checkpoint/checkpoint_reader.h"
#include "pipeline/coordinator/coordinator.h"

namespace swarmline {

class FolderSource final : public CheckpointSource {
 public:
  explicit FolderSource(std::string checkpoints_folder) : folder_(std::move(checkpoints_folder)) {}

  Result<std::optional<Saved>> open_newest() override;
  Result<BytesView> tensor(const std::string& name) const override;

 private:
  std::string folder_;
  std::optional<CheckpointReader> open_;
};

}  // namespace swarmline
