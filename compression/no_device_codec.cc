// Builds without CUDA.

#include "compression/device_codec.h"

namespace swarmline {

Result<std::unique_ptr<DeviceCodec>> make_device_codec(int) {
  return fail(ErrorCode::kDevice,
              "codecs on a device: this build has no CUDA; build with -DSWARMLINE_CUDA=ON.");
}

}  // namespace swarmline
