// 8-bit state: what is coded, how much it takes, that it is all there is, that it trains like fp32.

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/optimizer/layouts.h"

namespace swarmline {
namespace {

using testing::arena;
using testing::bytes_of;
using testing::layout_of;
using testing::mixed_layout;
using testing::options_of;

constexpr std::uint64_t kSteps = 6;

class State8 : public ::testing::TestWithParam<OptimizerKind> {
 protected:
  const OptimizerSection options_ = options_of(GetParam());
};

TEST(StateLayout, CodesWhatIsLargeAndNoEmbedding) {
  const ParameterLayout layout = mixed_layout();
  const StateLayout state = make_state_layout(options_of(OptimizerKind::kAdamW), layout);
  std::vector<std::string> coded;
  for (std::size_t i = 0; i < layout.slots.size(); ++i) {
    EXPECT_EQ(state.slots[i].first.values_at % kBufferAlignment, 0U);
    EXPECT_EQ(state.slots[i].first.scales_at % kBufferAlignment, 0U);
    if (state.slots[i].coded) coded.push_back(layout.slots[i].name);
  }
  EXPECT_EQ(coded, (std::vector<std::string>{"layers.0.attention.q.weight",
                                             "layers.0.mlp.up.weight", "layers.0.mlp.down.weight",
                                             "layers.0.mlp.gate.weight", "head.weight"}));
  const StateLayout fp32 =
      make_state_layout(options_of(OptimizerKind::kAdamW, MomentsKind::kF32), layout);
  EXPECT_EQ(fp32.bytes(), 2 * layout.bytes());
}

TEST(StateLayout, PartsLieOneAfterTheOther) {
  const ParameterLayout layout = mixed_layout();
  const StateLayout state = make_state_layout(options_of(OptimizerKind::kAdamW), layout);
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < layout.slots.size(); ++i) {
    const std::uint64_t n = layout.slots[i].elements;
    EXPECT_GE(state.slots[i].first.values_at, end);
    end = state.slots[i].first.values_at + (state.slots[i].coded ? n : 4 * n);
    if (!state.slots[i].coded) continue;
    EXPECT_GE(state.slots[i].first.scales_at, end);
    end = state.slots[i].first.scales_at + (n + 255) / 256 * 4;
  }
  EXPECT_LE(end, state.first_bytes);
  EXPECT_LT(state.first_bytes, end + kBufferAlignment);
}

TEST(StateLayout, TheWorkListCoversEveryElementOnce) {
  const ParameterLayout layout = mixed_layout();
  for (const MomentsKind kind : {MomentsKind::kF32, MomentsKind::k8Bit}) {
    const StateLayout state = make_state_layout(options_of(OptimizerKind::kAdamW, kind), layout);
    const WorkList work = make_work_list(layout, state);
    std::vector<int> seen(layout.elements);
    for (std::size_t c = 0; c < work.chunks.size(); ++c) {
      const kernels::OptimizerChunk& chunk = work.chunks[c];
      const kernels::OptimizerTensor& tensor = work.tensors[chunk.tensor];
      EXPECT_TRUE(c >= tensor.first_chunk && c < tensor.first_chunk + tensor.chunks);
      for (std::size_t i = 0; i < chunk.count; ++i) ++seen[chunk.element + i];
    }
    std::size_t elements = 0;
    for (const ParameterSlot& slot : layout.slots) {
      elements += slot.elements;
      for (std::size_t i = 0; i < slot.elements; ++i) ASSERT_EQ(seen[slot.offset + i], 1);
    }
    EXPECT_EQ(std::ranges::count(seen, 1), static_cast<std::ptrdiff_t>(elements));
    EXPECT_EQ(work.tensors.size(), layout.slots.size());
  }
}

TEST(StateBytes, AreTwoAndAThirtySecondPerParameterOfALargeTensor) {
  const std::size_t n = std::size_t{1} << 20;
  const ParameterLayout layout = layout_of(std::vector<testing::Tensor>{{"w", n}});
  const FlatOptimizer coded(options_of(OptimizerKind::kAdamW), layout);
  EXPECT_EQ(coded.state_bytes(), 2 * n + 2 * 4 * n / 256);
  const FlatOptimizer plain(options_of(OptimizerKind::kAdamW, MomentsKind::kF32), layout);
  EXPECT_EQ(plain.state_bytes(), 2 * layout.bytes());
}

// What is not coded moves exactly as it does with fp32 state; what is, nearly.
TEST_P(State8, StaysCloseToFp32) {
  const ParameterLayout layout = mixed_layout();
  FlatOptimizer coded(options_, layout), plain(options_of(GetParam(), MomentsKind::kF32), layout);
  std::vector<float> p = arena(layout, 1, 1.0F), q = p;
  const std::vector<float> start = p;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    std::vector<float> g(layout.elements);  // without the many magnitudes of arena()
    Rng rng(100 + step);
    for (float& value : g) value = unit_float(rng.next_u32()) - 0.5F;
    const StepScalars scalars = step_scalars(options_, step, kSteps, step, 1.0);
    ASSERT_TRUE(coded.step(scalars, bytes_of(g), bytes_of(p)));
    ASSERT_TRUE(plain.step(scalars, bytes_of(g), bytes_of(q)));
  }
  const StateLayout state = make_state_layout(options_, layout);
  for (std::size_t s = 0; s < layout.slots.size(); ++s) {
    double moved = 0, differs = 0;
    for (std::size_t i = 0; i < layout.slots[s].elements; ++i) {
      const std::size_t at = layout.slots[s].offset + i;
      moved += std::pow(double{q[at]} - start[at], 2);
      differs += std::pow(double{q[at]} - p[at], 2);
    }
    const double relative = std::sqrt(differs / moved);
    if (state.slots[s].coded) {
      EXPECT_GT(relative, 0);
      EXPECT_LT(relative, 0.03) << layout.slots[s].name;
    } else {
      EXPECT_EQ(relative, 0) << layout.slots[s].name;
    }
  }
}

TEST_P(State8, GapsAreNeitherReadNorWritten) {
  const ParameterLayout layout = mixed_layout();
  const float marker = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> p = arena(layout, 1, 1.0F, marker);
  const std::vector<float> g = arena(layout, 2, 1.0F, marker);
  FlatOptimizer optimizer(options_, layout);
  ASSERT_TRUE(optimizer.step(step_scalars(options_, 0, 10, 0, 1.0), bytes_of(g), bytes_of(p)));
  std::vector<bool> in_slot(layout.elements);
  for (const ParameterSlot& slot : layout.slots) {
    for (std::size_t i = 0; i < slot.elements; ++i) in_slot[slot.offset + i] = true;
  }
  for (std::size_t i = 0; i < layout.elements; ++i) ASSERT_EQ(std::isfinite(p[i]), in_slot[i]);
}

TEST_P(State8, BitsDoNotDependOnWhereATensorLies) {
  const ParameterLayout alone = layout_of(std::vector<testing::Tensor>{{"w", 9001}});
  ParameterLayout behind =
      layout_of(std::vector<testing::Tensor>{{"a", 4096}, {"b", 77}, {"w", 9001}});
  const std::size_t at = behind.slots[2].offset;
  FlatOptimizer small(options_, alone), large(options_, behind);
  std::vector<float> p = arena(alone, 1, 1.0F), q(behind.elements, 0.5F);
  std::ranges::copy(p, q.begin() + static_cast<long>(at));
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    const std::vector<float> g = arena(alone, 50 + step, 0.1F);
    std::vector<float> g_behind(behind.elements, -0.25F);
    std::ranges::copy(g, g_behind.begin() + static_cast<long>(at));
    const StepScalars scalars = step_scalars(options_, step, kSteps, step, 3.0);
    ASSERT_TRUE(small.step(scalars, bytes_of(g), bytes_of(p)));
    ASSERT_TRUE(large.step(scalars, bytes_of(std::as_const(g_behind)), bytes_of(q)));
  }
  EXPECT_TRUE(std::equal(p.begin(), p.begin() + 9001, q.begin() + static_cast<long>(at)));
}

TEST_P(State8, StateThatIsCopiedContinuesTheRunAndHashesAlike) {
  const ParameterLayout layout = mixed_layout();
  FlatOptimizer whole(options_, layout), second(options_, layout);
  std::vector<float> p = arena(layout, 1, 1.0F), q;
  const auto hash_of = [](const FlatOptimizer& optimizer) {
    RollingHash hash;
    EXPECT_TRUE(optimizer.add_state_to(hash));
    return hash.value();
  };
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    if (step == 3) {
      q = p;
      EXPECT_NE(hash_of(whole), hash_of(second));
      for (const Moment moment : {Moment::kFirst, Moment::kSecond}) {
        std::ranges::copy(*whole.moment(moment), second.moment(moment)->begin());
      }
      ASSERT_TRUE(second.moments_changed());
      EXPECT_EQ(hash_of(whole), hash_of(second));
    }
    const std::vector<float> g = arena(layout, 10 + step, 1.0F);
    const StepScalars scalars = step_scalars(options_, step, kSteps, step, 2.0);
    ASSERT_TRUE(whole.step(scalars, bytes_of(g), bytes_of(p)));
    if (step >= 3) ASSERT_TRUE(second.step(scalars, bytes_of(g), bytes_of(q)));
  }
  EXPECT_EQ(p, q);
  EXPECT_EQ(hash_of(whole), hash_of(second));
}

INSTANTIATE_TEST_SUITE_P(Kinds, State8,
                         ::testing::Values(OptimizerKind::kAdamW, OptimizerKind::kLamb),
                         [](const auto& info) {
                           return info.param == OptimizerKind::kAdamW ? "AdamW" : "Lamb";
                         });

}  // namespace
}  // namespace swarmline
