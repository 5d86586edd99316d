// The fabric of a peer on a device: over whichever of the device's libraries are there.
//   Ownership: the runtime outlives it, and it its groups.
//   Thread, errors, bounds: as engine/fabric/fabric.h says. Its end waits for what groups that are
//   gone still close.
#pragma once

#include <memory>

#include "engine/fabric/fabric.h"
#include "engine/fabric/fabric_thread.h"
#include "engine/fabric/ipc_api.h"
#include "engine/fabric/nccl_api.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

struct DeviceFabricParts {
  std::shared_ptr<NcclApi> nccl = nullptr;  // null: it has none
  std::shared_ptr<IpcApi> ipc = nullptr;
  Duration patience = kFabricPatience;
};

class DeviceFabric final : public Fabric {
 public:
  DeviceFabric(Runtime& runtime, DeviceFabricParts parts);

  bool offers(FabricKind kind) const override;
  std::unique_ptr<FabricGroup> open(FabricKind kind, std::uint32_t rank, std::uint32_t ranks,
                                    SendWord send_word) override;

 private:
  Runtime& runtime_;
  const DeviceFabricParts parts_;
  FabricThreadKeeper keeper_;
};

}  // namespace swarmline
