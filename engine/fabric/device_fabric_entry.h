// What libswarmline_cuda.so has for a fabric (kernels/cuda_library.h): the libraries of a device,
// and what that device is.
//   Thread: any. Errors: kDevice with one sentence on what is missing.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "engine/fabric/ipc_api.h"
#include "engine/fabric/nccl_api.h"

namespace swarmline {

struct DeviceFabricEntry {
  Result<std::unique_ptr<NcclApi>> (*make_nccl)(int device);
  Result<std::unique_ptr<IpcApi>> (*make_ipc)(int device);
  Result<std::string> (*uuid)(int device);
};
inline constexpr const char* kDeviceFabricEntry = "swarmline_cuda_fabric";

}  // namespace swarmline
