#include "compression/device_gradients_entry.h"

#include "kernels/cuda_library.h"

namespace swarmline {

Result<std::unique_ptr<DeviceGradients>> make_device_gradients(int device) {
  const auto make = cuda_entry<MakeDeviceGradients*>(kDeviceGradientsEntry);
  if (!make) return std::unexpected(make.error());
  return (**make)(device);
}

}  // namespace swarmline
