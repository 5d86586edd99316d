#include "tests/optimizer/cuda_under_test.h"

namespace swarmline::testing {

Result<std::unique_ptr<DeviceOptimizer>> optimizer_under_test(const OptimizerSection& options,
                                                              const ParameterLayout& layout,
                                                              DeviceAddress device_memory) {
  return make_device_optimizer(options, layout, device_memory);
}

}  // namespace swarmline::testing
