// DeviceGradients on CUDA: on a GPU, without which it skips with the reason; and over a stand-in
// for CUDA, on the host.

#include <cuda_runtime.h>

#include "base/byte_ops.h"
#include "tests/compression/cuda_under_test.h"
#include "tests/compression/device_gradients_suite.h"

namespace swarmline::testing {
namespace {

class OnCuda final : public GradientsDevice {
 public:
  explicit OnCuda(std::unique_ptr<DeviceGradients> gradients) : gradients_(std::move(gradients)) {}
  DeviceGradients& gradients() override { return *gradients_; }
  DeviceAddress allocate(std::size_t bytes) override {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, bytes), cudaSuccess);
    return static_cast<DeviceAddress>(memory);
  }
  void free(DeviceAddress memory) override { EXPECT_EQ(cudaFree(memory), cudaSuccess); }
  void bring(BytesView bytes, DeviceAddress to) override {
    EXPECT_EQ(cudaMemcpy(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  void fetch(DeviceAddress from, MutableBytes bytes) override {
    EXPECT_EQ(cudaMemcpy(bytes.data(), from, bytes.size(), cudaMemcpyDeviceToHost), cudaSuccess);
  }

 private:
  const std::unique_ptr<DeviceGradients> gradients_;
};

// An error only where there is no device; else the test fails.
Result<std::unique_ptr<GradientsDevice>> make_on_cuda() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess || devices == 0)
    return fail(ErrorCode::kDevice, std::string("no CUDA device: ") + cudaGetErrorString(status));
  auto gradients = gradients_under_test();
  EXPECT_TRUE(gradients) << gradients.error().what;
  if (!gradients) return std::unexpected(std::move(gradients).error());
  return std::make_unique<OnCuda>(std::move(*gradients));
}

INSTANTIATE_TEST_SUITE_P(OnCuda, DeviceGradientsSuite, ::testing::Values(&make_on_cuda));

class CudaGradients : public DeviceGradientsSuite {};

TEST_P(CudaGradients, EncodesAllButPlainValues) {
  for (const CodecSpec& codec : all_codecs())
    EXPECT_EQ(gradients().encodes(codec), codec.kind != CodecKind::kNone) << to_string(codec);
}

// What is queued on the default stream before is done first, and nobody has waited for it.
TEST_P(CudaGradients, ComesAfterWhatWasQueued) {
  constexpr std::size_t kN = std::size_t{16} << 20;
  const CodecSpec codec = *parse_codec("lin8");
  const DeviceFloats in(*device_, std::vector<float>(kN, 1.0F), 0);
  const std::vector<float> zeros(kN);
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(cudaMemsetAsync(in.at(), i == 19 ? 0 : 1, kN * sizeof(float), nullptr), cudaSuccess);
  const auto leaving = gradients().begin_encode(codec, in.at(), kN, {}, nullptr);
  ASSERT_TRUE(leaving) << leaving.error().what;
  const auto wire = (*leaving)->wait();
  ASSERT_TRUE(wire) << wire.error().what;
  EXPECT_TRUE(same_bytes(wire->bytes(), encode_values(codec, zeros).bytes()));
}

INSTANTIATE_TEST_SUITE_P(OnCuda, CudaGradients, ::testing::Values(&make_on_cuda));

}  // namespace
}  // namespace swarmline::testing
