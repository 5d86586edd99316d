// The entry of libswarmline_cuda.so that makes a DeviceCodec (kernels/cuda_library.h).
#pragma once

#include "compression/device_codec.h"

namespace swarmline {

using MakeDeviceCodec = decltype(make_device_codec);
inline constexpr const char* kDeviceCodecEntry = "swarmline_cuda_make_codec";

}  // namespace swarmline
