// The checkpoints of a run folder, for a run that goes back to one, and of the object storage that
// they are copied to, where it has newer ones; where there are none yet, the parameters that the
// run began with, if those were not drawn from its seed.
//   Thread: the coordinator's control thread; checkpoints are read and checked on the device's.
//   Ownership: the device outlives the source, or at least no callback of its runtime comes later.
//   Errors: those of CheckpointReader, and of CheckpointStore where the folder has none. Where it
//           has some, a store that can't be read is a warning.
#pragma once

#include <optional>
#include <string>

#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/device/device.h"
#include "node/object_store/checkpoint_store.h"
#include "pipeline/coordinator/coordinator.h"

namespace swarmline {

class FolderSource final : public CheckpointSource {
 public:
  // `initial_folder`: what initial_parameters.h wrote; empty: the run has no such.
  // `store`: empty: there is none.
  FolderSource(std::string checkpoints_folder, Device& device, std::string initial_folder = {},
               std::optional<CheckpointStore> store = {})
      : folder_(std::move(checkpoints_folder)),
        initial_(std::move(initial_folder)),
        store_(std::move(store)),
        device_(device) {}

  void open_newest(Opened done) override;
  Result<BytesView> tensor(const std::string& name) const override;

 private:
  std::string folder_;
  std::string initial_;
  std::optional<CheckpointStore> store_;
  Device& device_;
  std::optional<CheckpointReader> open_;
};

}  // namespace swarmline
