// What the tests of the optimizer's CUDA side are about: libswarmline_cuda.so's
// (cuda_of_library.cc), or what is linked into the test beside a stand-in for CUDA
// (cuda_of_stand_in.cc).
#pragma once

#include <memory>

#include "engine/model/device_optimizer.h"

namespace swarmline::testing {

// As make_device_optimizer().
Result<std::unique_ptr<DeviceOptimizer>> optimizer_under_test(const OptimizerSection& options,
                                                              const ParameterLayout& layout,
                                                              DeviceAddress device_memory);

}  // namespace swarmline::testing
