#include "engine/model/device_kernels.h"

#include "kernels/cuda_library.h"

namespace swarmline {

Result<const DeviceKernels*> device_kernels() {
  return cuda_entry<DeviceKernels>(kDeviceKernelsEntry);
}

PageLock lock_pages_for_device(MutableBytes memory) {
  const auto kernels = device_kernels();
  if (!kernels || memory.empty() || !(*kernels)->lock_pages(memory.data(), memory.size()))
    return {};
  return {memory.data(), [unlock = (*kernels)->unlock_pages](void* pages) { unlock(pages); }};
}

}  // namespace swarmline
