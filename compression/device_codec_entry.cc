#include "compression/device_codec_entry.h"

#include "kernels/cuda_library.h"

namespace swarmline {

Result<std::unique_ptr<DeviceCodec>> make_device_codec(int device) {
  const auto make = cuda_entry<MakeDeviceCodec*>(kDeviceCodecEntry);
  if (!make) return std::unexpected(make.error());
  return (**make)(device);
}

}  // namespace swarmline
