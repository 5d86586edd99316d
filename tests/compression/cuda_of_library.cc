#include "tests/compression/cuda_under_test.h"

namespace swarmline::testing {

Result<std::unique_ptr<DeviceCodec>> codec_under_test() {
  return make_device_codec(0);
}
Result<std::unique_ptr<DeviceGradients>> gradients_under_test() {
  return make_device_gradients(0);
}
std::size_t largest_under_test() {
  return 1'000'003;
}

}  // namespace swarmline::testing
