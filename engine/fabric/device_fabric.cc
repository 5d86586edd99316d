#include "engine/fabric/device_fabric.h"

#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "engine/fabric/ipc_fabric.h"
#include "engine/fabric/nccl_fabric.h"
#include "kernels/cuda_library.h"

namespace swarmline {
namespace {

std::optional<int> number_of(std::string_view device) {
  if (device == "cuda") return 0;
  if (!device.starts_with("cuda:")) return std::nullopt;
  device.remove_prefix(5);
  int number = -1;
  const auto [end, error] = std::from_chars(device.data(), device.data() + device.size(), number);
  const bool is_number = error == std::errc() && end == device.data() + device.size();
  return is_number && number >= 0 ? std::optional(number) : std::nullopt;
}

void say(std::string& missing, const Error& error) {
  if (!missing.empty()) missing += "; ";
  missing += error.what;
}

}  // namespace

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

DeviceFabricParts device_fabric_parts(const std::string& device, std::string& missing) {
  DeviceFabricParts parts;
  const auto number = number_of(device);
  if (!number) {
    missing = "device = \"" + device + "\" has no fabric";
    return parts;
  }
  const auto entry = cuda_entry<DeviceFabricEntry>(kDeviceFabricEntry);
  if (!entry) {
    missing = entry.error().what;
    return parts;
  }
  if (auto nccl = (*entry)->make_nccl(*number); nccl)
    parts.nccl = std::move(*nccl);
  else
    say(missing, nccl.error());
  if (auto ipc = (*entry)->make_ipc(*number); ipc)
    parts.ipc = std::move(*ipc);
  else
    say(missing, ipc.error());
  return parts;
}

GpuIdentity gpu_identity(const std::string& device, const DeviceFabricParts& parts) {
  const auto number = number_of(device);
  if (!number) return {};
  const auto entry = cuda_entry<DeviceFabricEntry>(kDeviceFabricEntry);
  if (!entry) return {};
  auto uuid = (*entry)->uuid(*number);
  if (!uuid) return {};
  return {.uuid = std::move(*uuid),
          .nccl = parts.nccl ? static_cast<std::uint32_t>(parts.nccl->version()) : 0,
          .ipc = parts.ipc != nullptr};
}

}  // namespace swarmline
