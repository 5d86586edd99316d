// The fabric of a peer on a device: over whichever of the device's libraries are there.
//   Ownership: the runtime outlives it, and it its groups.
//   Thread, errors, bounds: as engine/fabric/fabric.h says. Its end waits for what groups that are
//              gone still close.
#pragma once

#include <memory>
#include <string>

#include "engine/fabric/device_fabric_entry.h"
#include "engine/fabric/fabric.h"
#include "engine/fabric/fabric_thread.h"
#include "engine/fabric/gpu_identity.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

struct DeviceFabricParts {
  std::shared_ptr<NcclApi> nccl = nullptr;  // null: it offers no kNccl
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

// Of `device`: "cuda" or "cuda:N", once libtorch's CUDA side has been opened, beside which NCCL is;
// of any other name parts that are missing, and no identity. `missing`: a sentence for each part
// that is not there.
DeviceFabricParts device_fabric_parts(const std::string& device, std::string& missing);
// What a peer with these parts says of itself.
GpuIdentity gpu_identity(const std::string& device, const DeviceFabricParts& parts);

}  // namespace swarmline
