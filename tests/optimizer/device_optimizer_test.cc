// The bodies of the CUDA kernels, run on the host over a stage's work list, against the host's
// optimizer: same parameters, same state, bit for bit. And what FlatOptimizer does with a device.

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "engine/optimizer/step_constants.h"
#include "kernels/cuda/lamb_body.cuh"
#include "kernels/digest.h"
#include "tests/kernels/emulated_digest.h"
#include "tests/optimizer/layouts.h"

namespace swarmline {
namespace {

using kernels::OptimizerArenas;
using kernels::OptimizerChunk;
using kernels::cuda::AdamwRule;
using kernels::cuda::ChunkView;
using kernels::cuda::kTeamThreads;
using kernels::cuda::kTeamWarp;
using kernels::cuda::LambRule;
using kernels::cuda::MomentTables;
using kernels::cuda::NormShared;
using kernels::cuda::Team;
using testing::arena;
using testing::bytes_of;
using testing::mixed_layout;
using testing::options_of;

// What cuda_optimizer.cc does, with this process's memory for the device's. Threads of a phase run
// in the order that `stride` gives.
class EmulatedDevice final : public DeviceOptimizer {
 public:
  EmulatedDevice(const OptimizerSection& options, const ParameterLayout& layout, unsigned stride)
      : options_(options),
        state_(make_state_layout(options, layout)),
        work_(make_work_list(layout, state_)),
        m_(Buffer::zeroed(state_.first_bytes)),
        v_(Buffer::zeroed(state_.second_bytes)),
        reduced_(Buffer::zeroed(layout.bytes())),
        committed_(Buffer::zeroed(layout.bytes())),
        sums_(2 * work_.chunks.size()),
        rates_(work_.tensors.size()),
        stride_(stride) {}

  Result<void> step(const StepScalars& scalars, DeviceAddress gradients,
                    DeviceAddress parameters) override {
    const OptimizerArenas arenas{.gradients = reinterpret_cast<const float*>(gradients),
                                 .parameters = reinterpret_cast<float*>(parameters),
                                 .m = m_.data(),
                                 .v = v_.data()};
    if (options_.kind == OptimizerKind::kAdamW) {
      adamw(scalars, arenas);
    } else {
      lamb(scalars, arenas);
    }
    return {};
  }
  Result<DeviceAddress> arena(DeviceArena which) override {
    return (which == DeviceArena::kReduced ? reduced_ : committed_).data();
  }
  Result<void> bring(DeviceAddress to, BytesView from) override {
    return std::memcpy(to, from.data(), from.size()), Result<void>();
  }
  Result<void> fetch(MutableBytes to, DeviceAddress from) override {
    return std::memcpy(to.data(), from, to.size()), Result<void>();
  }
  Result<void> copy(DeviceAddress to, DeviceAddress from, std::uint64_t bytes) override {
    return std::memcpy(to, from, bytes), Result<void>();
  }
  Result<double> sum_of_squares(DeviceAddress values, std::uint64_t elements) override {
    return kernels::sum_of_squares(reinterpret_cast<const float*>(values), elements);
  }
  Result<void> read_state(Moment moment, std::uint64_t at, MutableBytes bytes) override {
    std::memcpy(bytes.data(), buffer(moment).data() + at, bytes.size());
    return {};
  }
  Result<void> write_state(Moment moment, std::uint64_t at, BytesView bytes) override {
    std::memcpy(buffer(moment).data() + at, bytes.data(), bytes.size());
    return {};
  }

  Result<std::uint64_t> digest_state(Moment moment) override {
    return testing::emulated_digest(buffer(moment).bytes());
  }
  Result<std::uint64_t> digest_memory(DeviceAddress memory, std::uint64_t bytes) override {
    return testing::emulated_digest({memory, bytes});
  }

 private:
  Buffer& buffer(Moment moment) { return moment == Moment::kFirst ? m_ : v_; }
  bool is_coded(std::size_t chunk) const { return chunk >= work_.chunks_fp32; }
  void adamw(const StepScalars& scalars, const OptimizerArenas& arenas) {
    const Team team(kTeamThreads, stride_);
    for (std::size_t c = 0; c < work_.chunks.size(); ++c) {
      const OptimizerChunk& chunk = work_.chunks[c];
      const AdamwRule rule{adamw_step<float>(options_, scalars, chunk.decay != 0)};
      if (is_coded(c)) {
        kernels::cuda::step8_body(team, ChunkView(chunk, arenas), rule, tables_);
      } else {
        kernels::cuda::adamw32_body(team, ChunkView(chunk, arenas), rule);
      }
    }
  }
  void lamb(const StepScalars& scalars, const OptimizerArenas& arenas) {
    const Team team(kTeamThreads, stride_), warp(kTeamWarp, stride_);
    const auto step_of = [&](const OptimizerChunk& chunk) {
      return lamb_step<float>(options_, scalars, chunk.decay != 0);
    };
    for (std::size_t c = 0; c < work_.chunks.size(); ++c) {
      const OptimizerChunk& chunk = work_.chunks[c];
      kernels::cuda::lamb_norms_body(team, ChunkView(chunk, arenas), step_of(chunk),
                                     is_coded(c) ? &tables_.codebooks : nullptr, norms_,
                                     &sums_[2 * c]);
    }
    for (std::size_t t = 0; t < work_.tensors.size(); ++t) {
      kernels::cuda::lamb_rate_body(warp, work_.tensors[t], sums_.data(), scalars.learning_rate,
                                    &rates_[t]);
    }
    for (std::size_t c = 0; c < work_.chunks.size(); ++c) {
      const OptimizerChunk& chunk = work_.chunks[c];
      const float rate = rates_[chunk.tensor];
      if (is_coded(c)) {
        const LambRule rule{step_of(chunk), rate};
        kernels::cuda::step8_body(team, ChunkView(chunk, arenas), rule, tables_);
      } else {
        kernels::cuda::lamb32_body(team, ChunkView(chunk, arenas), step_of(chunk), rate);
      }
    }
  }

  const OptimizerSection options_;
  const StateLayout state_;
  const WorkList work_;
  Buffer m_, v_;
  Buffer reduced_, committed_;
  std::vector<double> sums_;
  std::vector<float> rates_;
  MomentTables tables_{};
  NormShared norms_{};
  unsigned stride_;
};

struct Case {
  OptimizerKind kind;
  MomentsKind state;
  unsigned stride;  // of the emulated threads
};

class DeviceBodies : public ::testing::TestWithParam<Case> {
 protected:
  FlatOptimizer on_device(const OptimizerSection& options, const ParameterLayout& layout) {
    return {options, layout, std::make_unique<EmulatedDevice>(options, layout, GetParam().stride)};
  }
};

std::uint64_t hash_of(const FlatOptimizer& optimizer) {
  RollingHash hash;
  EXPECT_TRUE(optimizer.add_state_to(hash));
  return hash.value();
}

Buffer copied(const std::vector<float>& values) {
  return Buffer::copy_of(bytes_of(values));
}

TEST_P(DeviceBodies, HaveTheHostsBits) {
  const OptimizerSection options = options_of(GetParam().kind, GetParam().state);
  const ParameterLayout layout = mixed_layout();
  FlatOptimizer host(options, layout), device = on_device(options, layout);
  const std::vector<float> start = arena(layout, 1, 1.0F);
  Buffer p = copied(start), q = copied(start);
  for (std::uint64_t step = 0; step < 5; ++step) {
    // The last one not finite: the same there, too.
    std::vector<float> g = arena(layout, 20 + step, 0.2F);
    if (step == 4) g[layout.slots[3].offset + 300] = std::numeric_limits<float>::infinity();
    Buffer gradients = copied(g);
    const StepScalars scalars = step_scalars(options, step, 5, step, 2.0);
    ASSERT_TRUE(host.step(scalars, gradients.bytes(), p.bytes()));
    ASSERT_TRUE(device.step_there(scalars, gradients.data(), q.data()));
    if (step < 4) {
      ASSERT_TRUE(same_bytes(p.bytes(), q.bytes())) << "step " << step;
    }
    EXPECT_EQ(hash_of(host), hash_of(device)) << "step " << step;
    EXPECT_EQ(*device.device()->digest_memory(q.data(), q.size()), kernels::digest(q.bytes()));
  }
  EXPECT_FALSE(std::isfinite(q.as<float>()[layout.slots[3].offset + 300]));
}

TEST_P(DeviceBodies, StateGoesThereAndBack) {
  const OptimizerSection options = options_of(GetParam().kind, GetParam().state);
  const ParameterLayout layout = mixed_layout();
  FlatOptimizer host(options, layout), device = on_device(options, layout);
  Buffer p = copied(arena(layout, 1, 1.0F)), q = copied(arena(layout, 1, 1.0F));
  const auto step = [&](FlatOptimizer& optimizer, Buffer& parameters, std::uint64_t t) {
    Buffer gradients = copied(arena(layout, 40 + t, 0.2F));
    const StepScalars scalars = step_scalars(options, t, 5, t, 2.0);
    return optimizer.device() != nullptr
               ? optimizer.step_there(scalars, gradients.data(), parameters.data())
               : optimizer.step(scalars, gradients.bytes(), parameters.bytes());
  };
  ASSERT_TRUE(step(host, p, 0));
  copy_bytes(p.bytes(), q.bytes());
  for (const Moment moment : {Moment::kFirst, Moment::kSecond}) {
    std::ranges::copy(*host.moment(moment), device.moment(moment)->begin());
  }
  EXPECT_NE(hash_of(host), hash_of(device)) << "the device has not been told yet";
  ASSERT_TRUE(device.moments_changed());
  EXPECT_EQ(hash_of(host), hash_of(device));
  ASSERT_TRUE(step(host, p, 1));
  ASSERT_TRUE(step(device, q, 1));
  EXPECT_TRUE(same_bytes(p.bytes(), q.bytes()));
  EXPECT_TRUE(std::ranges::equal(*host.moment(Moment::kSecond), *device.moment(Moment::kSecond)));
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceBodies,
                         ::testing::Values(Case{OptimizerKind::kAdamW, MomentsKind::kF32, 1},
                                           Case{OptimizerKind::kAdamW, MomentsKind::k8Bit, 1},
                                           Case{OptimizerKind::kAdamW, MomentsKind::k8Bit, 77},
                                           Case{OptimizerKind::kLamb, MomentsKind::kF32, 1},
                                           Case{OptimizerKind::kLamb, MomentsKind::k8Bit, 1},
                                           Case{OptimizerKind::kLamb, MomentsKind::k8Bit, 77}),
                         [](const auto& info) {
                           return std::string(info.param.kind == OptimizerKind::kAdamW ? "AdamW"
                                                                                       : "Lamb") +
                                  (info.param.state == MomentsKind::k8Bit ? "8bit" : "fp32") +
                                  "Stride" + std::to_string(info.param.stride);
                         });

// 4097 chunks are more than one group of sums.
TEST(LambRate, SumsChunksInTheDocumentedOrder) {
  const std::size_t chunks = kernels::kSumBlock + 1;
  std::vector<double> sums(2 * chunks);
  Rng rng(3);
  for (double& sum : sums) sum = static_cast<double>(unit_float(rng.next_u32()));
  const auto ordered = [](const std::vector<double>& terms) {
    std::vector<double> level = terms;
    do {
      std::vector<double> next;
      for (std::size_t begin = 0; begin < level.size(); begin += kernels::kSumBlock) {
        std::vector<double> lanes(kernels::kSumLanes);
        const std::size_t end = std::min(level.size(), begin + kernels::kSumBlock);
        for (std::size_t i = begin; i < end; ++i) lanes[(i - begin) % 32] += level[i];
        for (std::size_t width = 16; width > 0; width /= 2) {
          for (std::size_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
        }
        next.push_back(lanes[0]);
      }
      level = next;
    } while (level.size() > 1);
    return level[0];
  };
  std::vector<double> parameters, updates;
  for (std::size_t i = 0; i < chunks; ++i) {
    parameters.push_back(sums[2 * i]);
    updates.push_back(sums[2 * i + 1]);
  }
  float rate = 0;
  kernels::cuda::lamb_rate_body(Team(kTeamWarp), {.first_chunk = 0, .chunks = chunks}, sums.data(),
                                0.02, &rate);
  const double trust = std::sqrt(ordered(parameters)) / std::sqrt(ordered(updates));
  EXPECT_EQ(rate, static_cast<float>(0.02 * trust));
}

}  // namespace
}  // namespace swarmline
