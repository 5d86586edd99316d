// The optimizer on a CUDA device: the host's bits, with parameters on the device or brought there.
// Skips, with the reason, without a device.

#include <cuda_runtime.h>
#include <limits>

#include <gtest/gtest.h>

#include "tests/optimizer/layouts.h"

namespace swarmline {
namespace {

using testing::arena;
using testing::bytes_of;
using testing::mixed_layout;
using testing::options_of;

struct Case {
  OptimizerKind kind;
  MomentsKind state;
};

class CudaOptimizerTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    int devices = 0;
    const cudaError_t status = cudaGetDeviceCount(&devices);
    if (status != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "no CUDA device: " << cudaGetErrorString(status);
    }
  }
  const OptimizerSection options_ = options_of(GetParam().kind, GetParam().state);
  const ParameterLayout layout_ = mixed_layout();
};

class DeviceFloats {
 public:
  explicit DeviceFloats(BytesView values) : bytes_(values.size()) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), bytes_), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), bytes_, cudaMemcpyHostToDevice), cudaSuccess);
  }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;
  ~DeviceFloats() { cudaFree(data_); }
  float* data() { return data_; }
  Buffer values() const {
    Buffer out(bytes_);
    EXPECT_EQ(cudaMemcpy(out.data(), data_, bytes_, cudaMemcpyDeviceToHost), cudaSuccess);
    return out;
  }

 private:
  std::size_t bytes_;
  float* data_ = nullptr;
};

std::uint64_t hash_of(const FlatOptimizer& optimizer) {
  RollingHash hash;
  EXPECT_TRUE(optimizer.add_state_to(hash));
  return hash.value();
}

TEST_P(CudaOptimizerTest, HasTheHostsBits) {
  for (const bool in_place : {true, false}) {
    const Buffer start = Buffer::copy_of(bytes_of(arena(layout_, 1, 1.0F)));
    DeviceFloats parameters(start.bytes());
    auto made = make_device_optimizer(options_, layout_, parameters.data());
    ASSERT_TRUE(made) << made.error().what;
    FlatOptimizer host(options_, layout_), device(options_, layout_, std::move(*made));
    EXPECT_TRUE(device.on_device());
    Buffer p = Buffer::copy_of(start.bytes()), mirror = Buffer::copy_of(start.bytes());
    for (std::uint64_t step = 0; step < 5; ++step) {
      const std::vector<float> g = arena(layout_, 20 + step, 0.2F);
      const StepScalars scalars = step_scalars(options_, step, 5, step, 2.0);
      ASSERT_TRUE(host.step(scalars, bytes_of(g), p.bytes()));
      const auto done =
          device.step(scalars, bytes_of(g), mirror.bytes(), in_place ? parameters.data() : nullptr);
      ASSERT_TRUE(done) << done.error().what;
      ASSERT_TRUE(std::ranges::equal(p.bytes(), mirror.bytes())) << "step " << step;
      if (in_place) EXPECT_TRUE(std::ranges::equal(p.bytes(), parameters.values().bytes()));
      EXPECT_EQ(hash_of(host), hash_of(device)) << "step " << step;
      RollingHash of_host, of_device;
      ASSERT_TRUE(host.add_parameters_to(of_host, p.bytes()));
      ASSERT_TRUE(device.add_parameters_to(of_device, mirror.bytes(),
                                           in_place ? parameters.data() : nullptr));
      EXPECT_EQ(of_host.value(), of_device.value());
    }
  }
}

TEST_P(CudaOptimizerTest, StateGoesThereAndBack) {
  Buffer p = Buffer::copy_of(bytes_of(arena(layout_, 1, 1.0F)));
  DeviceFloats parameters(p.bytes());
  auto made = make_device_optimizer(options_, layout_, parameters.data());
  ASSERT_TRUE(made) << made.error().what;
  FlatOptimizer host(options_, layout_), device(options_, layout_, std::move(*made));
  const auto step = [&](FlatOptimizer& optimizer, Buffer& to, std::uint64_t t) {
    const std::vector<float> g = arena(layout_, 40 + t, 0.2F);
    return optimizer.step(step_scalars(options_, t, 5, t, 2.0), bytes_of(g), to.bytes());
  };
  ASSERT_TRUE(step(host, p, 0));
  Buffer q = Buffer::copy_of(p.bytes());
  for (const Moment moment : {Moment::kFirst, Moment::kSecond}) {
    std::ranges::copy(*host.moment(moment), device.moment(moment)->begin());
  }
  ASSERT_TRUE(device.moments_changed());
  EXPECT_EQ(hash_of(host), hash_of(device));
  ASSERT_TRUE(step(host, p, 1));
  ASSERT_TRUE(step(device, q, 1));
  EXPECT_TRUE(std::ranges::equal(p.bytes(), q.bytes()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaOptimizerTest,
                         ::testing::Values(Case{OptimizerKind::kAdamW, MomentsKind::kF32},
                                           Case{OptimizerKind::kAdamW, MomentsKind::k8Bit},
                                           Case{OptimizerKind::kLamb, MomentsKind::kF32},
                                           Case{OptimizerKind::kLamb, MomentsKind::k8Bit}),
                         [](const auto& info) {
                           return std::string(info.param.kind == OptimizerKind::kAdamW ? "AdamW"
                                                                                       : "Lamb") +
                                  (info.param.state == MomentsKind::k8Bit ? "8bit" : "fp32");
                         });

}  // namespace
}  // namespace swarmline
