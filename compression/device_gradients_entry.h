// The entry of libswarmline_cuda.so that makes a DeviceGradients (kernels/cuda_library.h).
#pragma once

#include "compression/device_gradients.h"

namespace swarmline {

using MakeDeviceGradients = decltype(make_device_gradients);
inline constexpr const char* kDeviceGradientsEntry = "swarmline_cuda_make_gradients";

}  // namespace swarmline
