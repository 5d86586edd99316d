#include "engine/model/device_optimizer_entry.h"

#include "kernels/cuda_library.h"

namespace swarmline {

Result<std::unique_ptr<DeviceOptimizer>> make_device_optimizer(const OptimizerSection& options,
                                                               const ParameterLayout& layout,
                                                               DeviceAddress device_memory) {
  const auto make = cuda_entry<MakeDeviceOptimizer*>(kDeviceOptimizerEntry);
  if (!make) return std::unexpected(make.error());
  return (**make)(options, layout, device_memory);
}

}  // namespace swarmline
