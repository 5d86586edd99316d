#include "compression/device_codec_entry.h"
#include "compression/device_gradients_entry.h"
#include "tests/compression/cuda_under_test.h"

extern "C" {
extern swarmline::MakeDeviceCodec* const swarmline_cuda_make_codec;
extern swarmline::MakeDeviceGradients* const swarmline_cuda_make_gradients;
}

namespace swarmline::testing {

Result<std::unique_ptr<DeviceCodec>> codec_under_test() {
  return swarmline_cuda_make_codec(0);
}
Result<std::unique_ptr<DeviceGradients>> gradients_under_test() {
  return swarmline_cuda_make_gradients(0);
}
std::size_t largest_under_test() {
  return 70'000;
}

}  // namespace swarmline::testing
