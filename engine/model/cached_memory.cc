#include "engine/model/cached_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

#include "engine/model/device_kernels.h"

namespace swarmline {

void release_cached_memory(at::Device device) {
  if (device.is_cpu()) return;
  auto* const allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (allocator != nullptr && allocator->initialized()) allocator->emptyCache();
}

void share_cached_memory(at::Device device) {
  const auto kernels = device_kernels();
  if (device.is_cuda() && kernels)
    (*kernels)->set_on_full([] { release_cached_memory(at::Device(at::kCUDA)); });
}

}  // namespace swarmline
