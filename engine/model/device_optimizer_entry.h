// The entry of libswarmline_cuda.so that makes a DeviceOptimizer (kernels/cuda_library.h).
#pragma once

#include "engine/model/device_optimizer.h"

namespace swarmline {

using MakeDeviceOptimizer = decltype(make_device_optimizer);
inline constexpr const char* kDeviceOptimizerEntry = "swarmline_cuda_make_optimizer";

}  // namespace swarmline
