// CUDA as the fabric's parts call it. For CUDA sources.
//   Errors: kDevice with CUDA's sentence.
#pragma once

#include <cuda_runtime.h>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "engine/fabric/device_stream.h"
#include "engine/fabric/nccl_api.h"

namespace swarmline::cuda {

Result<void> well(cudaError_t status, std::string_view what);
// The calling thread's, from now on.
Result<void> use_device(int device);
// Of the calling thread's device; before all others there, where streams have priorities.
Result<std::unique_ptr<DeviceStream>> make_fabric_stream();
Result<std::unique_ptr<NcclApi>> make_nccl(int device);

}  // namespace swarmline::cuda
