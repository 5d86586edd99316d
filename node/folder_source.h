// The checkpoints of a run folder, for a run that goes back to one; where it has none yet, the
// parameters that it began with, where those were not drawn from its seed.
//   Thread: the coordinator's control thread; checkpoints are read and checked on the device's.
//   Ownership: the device outlives the source, or at least no callback of its runtime comes later.
//   Errors: those of CheckpointReader.
#pragma once

#include <optional>
#include <string>

#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/device/device.h"
#include "pipeline/coordinator/coordinator.h"

namespace swarmline {

class FolderSource final : public CheckpointSource {
 public:
  // `initial_folder`: what initial_parameters.h wrote; empty: the run has no such.
  FolderSource(std::string checkpoints_folder, Device& device, std::string initial_folder = {})
      : folder_(std::move(checkpoints_folder)),
        initial_(std::move(initial_folder)),
        device_(device) {}

  void open_newest(Opened done) override;
  Result<BytesView> tensor(const std::string& name) const override;

 private:
  std::string folder_;
  std::string initial_;
  Device& device_;
  std::optional<CheckpointReader> open_;
};

}  // namespace swarmline
