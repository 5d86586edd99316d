#include "engine/model/device_optimizer_entry.h"
#include "tests/optimizer/cuda_under_test.h"

extern "C" {
extern swarmline::MakeDeviceOptimizer* const swarmline_cuda_make_optimizer;
}

namespace swarmline::testing {

Result<std::unique_ptr<DeviceOptimizer>> optimizer_under_test(const OptimizerSection& options,
                                                              const ParameterLayout& layout,
                                                              DeviceAddress device_memory) {
  return swarmline_cuda_make_optimizer(options, layout, device_memory);
}

}  // namespace swarmline::testing
