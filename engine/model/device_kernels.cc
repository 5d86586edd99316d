#include "engine/model/device_kernels.h"

#include "kernels/cuda_library.h"

namespace swarmline {

Result<const DeviceKernels*> device_kernels() {
  return cuda_entry<DeviceKernels>(kDeviceKernelsEntry);
}

}  // namespace swarmline
