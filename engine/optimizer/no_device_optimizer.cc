// Builds without CUDA.

#include "engine/optimizer/device_optimizer.h"

namespace swarmline {

Result<std::unique_ptr<DeviceOptimizer>> make_device_optimizer(const OptimizerSection&,
                                                               const ParameterLayout&,
                                                               const float*) {
  return fail(ErrorCode::kDevice,
              "optimizer.state_memory = \"device\": this build has no CUDA; build with "
              "-DSWARMLINE_CUDA=ON, or use \"host\".");
}

}  // namespace swarmline
