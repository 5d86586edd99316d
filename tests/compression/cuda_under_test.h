// What the tests of compression/'s CUDA side are about, on device 0: libswarmline_cuda.so's
// (cuda_of_library.cc), or what is linked into the test beside a stand-in for CUDA
// (cuda_of_stand_in.cc).
#pragma once

#include <cstddef>
#include <memory>

#include "compression/device_codec.h"
#include "compression/device_gradients.h"

namespace swarmline::testing {

Result<std::unique_ptr<DeviceCodec>> codec_under_test();
Result<std::unique_ptr<DeviceGradients>> gradients_under_test();
// Elements of the largest tensors: kernels' bodies on the host are slow.
std::size_t largest_under_test();

}  // namespace swarmline::testing
