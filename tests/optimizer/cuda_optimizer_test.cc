// The optimizer on a CUDA device: the host's bits, with parameters on the device or brought there.
// On a GPU, without which it skips with the reason; and over a stand-in for CUDA, on the host.

#include <cuda_runtime.h>
#include <limits>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "kernels/digest.h"
#include "kernels/kernels.h"
#include "tests/kernels/device_array.h"
#include "tests/optimizer/cuda_under_test.h"
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
  DeviceAddress data() { return reinterpret_cast<DeviceAddress>(data_); }
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
    DeviceFloats models(start.bytes());
    auto made = testing::optimizer_under_test(options_, layout_, models.data());
    ASSERT_TRUE(made) << made.error().what;
    DeviceOptimizer& there = **made;
    FlatOptimizer host(options_, layout_), device(options_, layout_, std::move(*made));
    EXPECT_EQ(device.device(), &there);
    const auto gradients = there.arena(DeviceArena::kReduced);
    const auto committed = there.arena(DeviceArena::kCommitted);
    ASSERT_TRUE(gradients && committed);
    ASSERT_TRUE(there.copy(*committed, models.data(), start.size()));
    EXPECT_EQ(there.sum_of_squares(*gradients, 100).value_or(-1), 0) << "less than what comes";
    const DeviceAddress parameters = in_place ? models.data() : *committed;
    Buffer p = Buffer::copy_of(start.bytes()), q(start.size());
    for (std::uint64_t step = 0; step < 5; ++step) {
      const std::vector<float> g = arena(layout_, 20 + step, 0.2F);
      const StepScalars scalars = step_scalars(options_, step, 5, step, 2.0);
      ASSERT_TRUE(host.step(scalars, bytes_of(g), p.bytes()));
      ASSERT_TRUE(there.bring(*gradients, bytes_of(g)));
      EXPECT_EQ(there.sum_of_squares(*gradients, g.size()).value_or(-1),
                sum_of_squares(bytes_of(g), DType::kF32));
      const auto done = device.step_there(scalars, *gradients, parameters);
      ASSERT_TRUE(done) << done.error().what;
      ASSERT_TRUE(there.fetch(q.bytes(), parameters));
      ASSERT_TRUE(same_bytes(p.bytes(), q.bytes())) << "step " << step;
      EXPECT_EQ(hash_of(host), hash_of(device)) << "step " << step;
      EXPECT_EQ(there.digest_memory(parameters, q.size()).value_or(0), kernels::digest(p.bytes()));
    }
  }
}

// More than a block of blocks: their sums are summed twice.
class CudaOptimizerSums : public testing::CudaTest {};
TEST_F(CudaOptimizerSums, OfManyBlocksAreTheHosts) {
  const std::vector<float> some = testing::samples<float>(kernels::kSumBlock + 3, 5);
  std::vector<float> values(kernels::kSumBlock * kernels::kSumBlock + 2 * some.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = some[i % some.size()];
  DeviceFloats there(bytes_of(values));
  const auto made = testing::optimizer_under_test(options_of(OptimizerKind::kAdamW), mixed_layout(),
                                                  there.data());
  ASSERT_TRUE(made) << made.error().what;
  EXPECT_EQ((*made)->sum_of_squares(there.data(), values.size()).value_or(-1),
            sum_of_squares(bytes_of(values), DType::kF32));
}

TEST_P(CudaOptimizerTest, StateGoesThereAndBack) {
  Buffer p = Buffer::copy_of(bytes_of(arena(layout_, 1, 1.0F)));
  DeviceFloats parameters(p.bytes());
  auto made = testing::optimizer_under_test(options_, layout_, parameters.data());
  ASSERT_TRUE(made) << made.error().what;
  FlatOptimizer host(options_, layout_), device(options_, layout_, std::move(*made));
  const auto step = [&](FlatOptimizer& optimizer, Buffer& to, std::uint64_t t) -> Result<void> {
    const std::vector<float> g = arena(layout_, 40 + t, 0.2F);
    const StepScalars scalars = step_scalars(options_, t, 5, t, 2.0);
    DeviceOptimizer* const there = optimizer.device();
    if (there == nullptr) return optimizer.step(scalars, bytes_of(g), to.bytes());
    const DeviceAddress gradients = *there->arena(DeviceArena::kReduced);
    SWARMLINE_TRY(there->bring(gradients, bytes_of(g)));
    SWARMLINE_TRY(there->bring(parameters.data(), to.bytes()));
    SWARMLINE_TRY(optimizer.step_there(scalars, gradients, parameters.data()));
    return there->fetch(to.bytes(), parameters.data());
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
  EXPECT_TRUE(same_bytes(p.bytes(), q.bytes()));
}

// A stream that does not wait for the default one, as another process's, sees what was made.
TEST_P(CudaOptimizerTest, WhatItMakesIsThereWhenItReturns) {
  cudaStream_t beside = nullptr;
  std::byte* seen = nullptr;
  const std::size_t bytes = layout_.bytes();
  ASSERT_EQ(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&seen), bytes, 0), cudaSuccess);
  const auto expect_there = [&](DeviceAddress at, BytesView wanted) {
    EXPECT_EQ(cudaMemcpyAsync(seen, at, bytes, cudaMemcpyDeviceToHost, beside), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(beside), cudaSuccess);
    EXPECT_TRUE(std::ranges::equal(BytesView(seen, bytes), wanted));
  };
  Buffer p = Buffer::copy_of(bytes_of(arena(layout_, 1, 1.0F)));
  DeviceFloats parameters(p.bytes());
  auto made = testing::optimizer_under_test(options_, layout_, parameters.data());
  ASSERT_TRUE(made) << made.error().what;
  const DeviceAddress island = *(*made)->arena(DeviceArena::kIsland);
  expect_there(island, Buffer::zeroed(bytes).bytes());
  const std::vector<float> g = arena(layout_, 2, 0.2F);
  const DeviceAddress reduced = *(*made)->arena(DeviceArena::kReduced);
  ASSERT_TRUE((*made)->bring(reduced, bytes_of(g)));
  expect_there(reduced, bytes_of(g));
  ASSERT_TRUE((*made)->copy(island, reduced, bytes));
  expect_there(island, bytes_of(g));
  const StepScalars scalars = step_scalars(options_, 0, 5, 0, 2.0);
  FlatOptimizer host(options_, layout_);
  ASSERT_TRUE(host.step(scalars, bytes_of(g), p.bytes()));
  ASSERT_TRUE((*made)->step(scalars, reduced, parameters.data()));
  expect_there(parameters.data(), p.bytes());
  EXPECT_EQ(cudaStreamDestroy(beside), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(seen), cudaSuccess);
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
