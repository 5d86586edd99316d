#include "engine/fabric/device_fabric.h"

#include <utility>

#include "base/check.h"
#include "engine/fabric/ipc_fabric.h"
#include "engine/fabric/nccl_fabric.h"

namespace swarmline {

DeviceFabric::DeviceFabric(Runtime& runtime, DeviceFabricParts parts)
    : runtime_(runtime), parts_(std::move(parts)) {}

bool DeviceFabric::offers(FabricKind kind) const {
  return (kind == FabricKind::kNccl && parts_.nccl != nullptr) ||
         (kind == FabricKind::kIpc && parts_.ipc != nullptr);
}

std::unique_ptr<FabricGroup> DeviceFabric::open(FabricKind kind, std::uint32_t rank,
                                                std::uint32_t ranks, SendWord send_word) {
  SWARMLINE_CHECK(offers(kind));
  if (kind == FabricKind::kIpc)
    return make_ipc_group(runtime_, parts_.ipc, keeper_, rank, ranks, parts_.patience,
                          std::move(send_word));
  return make_nccl_group(runtime_, parts_.nccl, keeper_, rank, ranks, parts_.patience,
                         std::move(send_word));
}

}  // namespace swarmline
