#include "engine/model/cached_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

#include "engine/model/device_kernels.h"
#include "engine/model/find_device.h"
#include "engine/model/stage_model.h"

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

std::uint64_t free_device_memory(const std::string& device) {
  const auto found = find_device(device);
  if (!found || !found->is_cuda()) return 0;
  // What an earlier stage had would count as taken.
  release_cached_memory(*found);
  const auto kernels = device_kernels();
  return kernels ? (*kernels)->free_memory(found->has_index() ? found->index() : 0) : 0;
}

}  // namespace swarmline
