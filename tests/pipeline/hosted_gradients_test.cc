// The double that stands for a device's memory in simulation keeps what every DeviceGradients does.
#include <cstdlib>
#include <cstring>

#include "base/byte_ops.h"
#include "sim/cluster/resident_model.h"
#include "tests/compression/device_gradients_suite.h"

namespace swarmline::testing {
namespace {

class OnHost final : public GradientsDevice {
 public:
  DeviceGradients& gradients() override { return gradients_; }
  DeviceAddress allocate(std::size_t bytes) override {
    constexpr std::size_t kBoundary = 64;
    return static_cast<DeviceAddress>(
        std::aligned_alloc(kBoundary, (bytes + kBoundary) / kBoundary * kBoundary));
  }
  void free(DeviceAddress memory) override { std::free(memory); }
  void bring(BytesView bytes, DeviceAddress to) override { copy_bytes(bytes, {to, bytes.size()}); }
  void fetch(DeviceAddress from, MutableBytes bytes) override {
    std::copy_n(from, bytes.size(), bytes.begin());
  }

 private:
  HostedGradients gradients_{DType::kF32, std::make_shared<DeviceBus>()};
};

Result<std::unique_ptr<GradientsDevice>> make_on_host() {
  return std::make_unique<OnHost>();
}

INSTANTIATE_TEST_SUITE_P(OnHost, DeviceGradientsSuite, ::testing::Values(&make_on_host));

}  // namespace
}  // namespace swarmline::testing
