// What libswarmline_cuda.so has for a fabric (kernels/cuda_library.h): the libraries of a device,
// and what that device is.
//   Thread: any. Errors: kDevice with one sentence on what is missing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/fabric/ipc_api.h"
#include "engine/fabric/nccl_api.h"

namespace swarmline {

// What peers of a host say of their devices, so that others know which kind of group they can have.
struct DeviceIdentity {
  std::string uuid;                // "GPU-xxxxxxxx-..."; empty: no CUDA device
  std::uint32_t nccl_version = 0;  // 22809: 2.28.9; 0: it has none
  bool operator==(const DeviceIdentity&) const = default;
};

struct DeviceFabricEntry {
  Result<std::unique_ptr<NcclApi>> (*make_nccl)(int device);
  Result<std::unique_ptr<IpcApi>> (*make_ipc)(int device);
  Result<std::string> (*uuid)(int device);
};
inline constexpr const char* kDeviceFabricEntry = "swarmline_cuda_fabric";

}  // namespace swarmline
