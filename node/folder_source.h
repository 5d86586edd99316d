// The checkpoints of a run folder, for a run that goes back to one.
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
  FolderSource(std::string checkpoints_folder, Device& device)
      : folder_(std::move(checkpoints_folder)), device_(device) {}

  void open_newest(Opened done) override;
  Result<BytesView> tensor(const std::string& name) const override;

 private:
  std::string folder_;
  Device& device_;
  std::optional<CheckpointReader> open_;
};

}  // namespace swarmline
