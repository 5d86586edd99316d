// AdamW and LAMB on flat buffers against the papers' formulas in float64, tensor by tensor.

#include "engine/optimizer/flat_optimizer.h"

#include <limits>

#include <gtest/gtest.h>

#include "tests/kernels/samples.h"

namespace swarmline {
namespace {

using testing::kSizes;
using testing::samples;

constexpr std::uint64_t kSteps = 8;

OptimizerSection options_of(OptimizerKind kind) {
  OptimizerSection options;
  options.kind = kind;
  options.lr = 0.01;
  options.beta1 = 0.9;
  options.beta2 = 0.95;
  options.eps = 1e-8;
  options.weight_decay = 0.1;
  options.clip = 0.5;
  options.warmup_steps = 3;
  return options;
}

// One slot of every size, every other one without decay, on 64-byte boundaries with gaps between.
ParameterLayout layout_of(DType dtype, std::span<const std::size_t> sizes) {
  ParameterLayout layout;
  layout.dtype = dtype;
  const std::uint64_t line = 64 / size_bytes(dtype);
  for (const std::size_t n : sizes) {
    layout.slots.push_back({.name = "slot" + std::to_string(layout.slots.size()),
                            .shape = {static_cast<std::int64_t>(n)},
                            .offset = layout.elements,
                            .elements = n,
                            .decay = layout.slots.size() % 2 == 0});
    layout.elements += (n + line) / line * line;  // at least one element of gap
  }
  layout.tied_offset = layout.elements;
  return layout;
}

// The papers' formulas, nothing rearranged.
struct Reference {
  OptimizerSection options;
  ParameterLayout layout;
  std::vector<double> m, v, p;

  void step(std::uint64_t t, double lr, double clip, const std::vector<double>& gradients) {
    for (const ParameterSlot& slot : layout.slots) {
      const double decay = slot.decay ? options.weight_decay : 0;
      long double p_squares = 0, u_squares = 0;  // a plain double sum would be the noisier one
      std::vector<double> update(slot.elements);
      for (std::size_t j = 0; j < slot.elements; ++j) {
        const std::size_t i = slot.offset + j;
        const double g = gradients[i] * clip;
        m[i] = options.beta1 * m[i] + (1 - options.beta1) * g;
        v[i] = options.beta2 * v[i] + (1 - options.beta2) * g * g;
        const double m_hat = m[i] / (1 - std::pow(options.beta1, t));
        const double v_hat = v[i] / (1 - std::pow(options.beta2, t));
        update[j] = m_hat / (std::sqrt(v_hat) + options.eps) + decay * p[i];
        p_squares += p[i] * p[i];
        u_squares += update[j] * update[j];
      }
      double trust = 1;
      if (options.kind == OptimizerKind::kLamb && p_squares > 0 && u_squares > 0) {
        trust = static_cast<double>(std::sqrt(p_squares) / std::sqrt(u_squares));
      }
      for (std::size_t j = 0; j < slot.elements; ++j) p[slot.offset + j] -= lr * trust * update[j];
    }
  }
};

template <typename T>
MutableBytes bytes_of(std::vector<T>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T)};
}
template <typename T>
BytesView bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}

// Values in the slots, a marker in the gaps.
template <typename T>
std::vector<T> arena(const ParameterLayout& layout, std::uint64_t seed, double scale, T gap) {
  const std::vector<T> drawn = samples<T>(layout.elements, seed);
  std::vector<T> values(layout.elements, gap);
  for (const ParameterSlot& slot : layout.slots) {
    for (std::size_t i = slot.offset; i < slot.offset + slot.elements; ++i) {
      values[i] = drawn[i] * static_cast<T>(scale);
    }
  }
  return values;
}
template <typename T>
double norm_of(const ParameterLayout& layout, const std::vector<T>& gradients) {
  double sum = 0;
  for (const ParameterSlot& slot : layout.slots) {
    sum += sum_of_squares(
        bytes_of(gradients).subspan(slot.offset * sizeof(T), slot.elements * sizeof(T)),
        layout.dtype);
  }
  return std::sqrt(sum);
}

template <typename T>
struct Trained {
  std::vector<T> p, m, v;
};
// kSteps steps; the buffers of each call start `misaligned_bytes` past where vectors do.
template <typename T>
Trained<T> run_flat(const OptimizerSection& options, const ParameterLayout& layout,
                    std::size_t misaligned_bytes = 0, Reference* reference = nullptr) {
  FlatOptimizer optimizer(options, layout);
  std::vector<std::byte> p_bytes(layout.bytes() + misaligned_bytes);
  std::vector<std::byte> g_bytes(layout.bytes() + misaligned_bytes);
  const MutableBytes p_view = MutableBytes(p_bytes).subspan(misaligned_bytes);
  const MutableBytes g_view = MutableBytes(g_bytes).subspan(misaligned_bytes);
  const std::vector<T> start = arena<T>(layout, 1, 1.0, T(0));
  std::memcpy(p_view.data(), start.data(), layout.bytes());
  if (reference != nullptr) {
    reference->m.assign(layout.elements, 0);
    reference->v.assign(layout.elements, 0);
    reference->p.assign(start.begin(), start.end());
  }
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    const std::vector<T> gradients = arena<T>(layout, 100 + step, 0.1, T(0));
    std::memcpy(g_view.data(), gradients.data(), layout.bytes());
    const StepScalars scalars =
        step_scalars(options, step, kSteps, step, norm_of(layout, gradients));
    optimizer.step(scalars, g_view, p_view);
    if (reference != nullptr) {
      reference->step(step + 1, scalars.learning_rate, scalars.clip_scale,
                      std::vector<double>(gradients.begin(), gradients.end()));
    }
  }
  Trained<T> out;
  out.p.resize(layout.elements);
  std::memcpy(out.p.data(), p_view.data(), layout.bytes());
  const MutableBytes m = *optimizer.moment(Moment::kFirst);
  const MutableBytes v = *optimizer.moment(Moment::kSecond);
  out.m.assign(reinterpret_cast<T*>(m.data()), reinterpret_cast<T*>(m.data() + m.size()));
  out.v.assign(reinterpret_cast<T*>(v.data()), reinterpret_cast<T*>(v.data() + v.size()));
  EXPECT_EQ(optimizer.state_bytes(), 2 * layout.bytes());
  return out;
}

class FlatOptimizerTest : public ::testing::TestWithParam<OptimizerKind> {
 protected:
  template <typename T>
  void compare_with_reference(DType dtype, double update_tolerance, double value_tolerance) {
    const OptimizerSection options = options_of(GetParam());
    const ParameterLayout layout = layout_of(dtype, kSizes);
    Reference reference{options, layout, {}, {}, {}};
    const Trained<T> run = run_flat<T>(options, layout, 0, &reference);
    for (const ParameterSlot& slot : layout.slots) {
      for (std::size_t i = slot.offset; i < slot.offset + slot.elements; ++i) {
        // A step moves an element by about lr (times the trust ratio, at most 10 here).
        const double bound =
            kSteps * options.lr * update_tolerance + value_tolerance * std::abs(reference.p[i]);
        ASSERT_NEAR(double{run.p[i]}, reference.p[i], bound) << slot.name << ' ' << i;
        ASSERT_NEAR(double{run.m[i]}, reference.m[i], update_tolerance * 1e-1);
        ASSERT_NEAR(double{run.v[i]}, reference.v[i], update_tolerance * 1e-1);
      }
    }
  }
};

TEST_P(FlatOptimizerTest, Fp64AgreesWithThePaper) {
  compare_with_reference<double>(DType::kF64, 1e-12, 1e-13);
}

TEST_P(FlatOptimizerTest, Fp32AgreesWithThePaper) {
  compare_with_reference<float>(DType::kF32, 1e-4, 2e-6);
}

TEST_P(FlatOptimizerTest, SameBitsTwiceAndAtAnyAlignment) {
  const OptimizerSection options = options_of(GetParam());
  const auto check = [&]<typename T>(DType dtype) {
    const ParameterLayout layout =
        layout_of(dtype, std::array<std::size_t, 4>{1, 257, 4097, 65537});
    const Trained<T> first = run_flat<T>(options, layout);
    for (const std::size_t misaligned : {0, 4, 13}) {
      const Trained<T> again = run_flat<T>(options, layout, misaligned);
      EXPECT_EQ(testing::first_difference(first.p, again.p), layout.elements);
      EXPECT_EQ(testing::first_difference(first.m, again.m), layout.elements);
      EXPECT_EQ(testing::first_difference(first.v, again.v), layout.elements);
    }
  };
  check.operator()<float>(DType::kF32);
  check.operator()<double>(DType::kF64);
}

TEST_P(FlatOptimizerTest, BitsDoNotDependOnWhereASlotLies) {
  // The same tensor alone and behind others: a stage cut elsewhere must train the same.
  const OptimizerSection options = options_of(GetParam());
  const ParameterLayout alone = layout_of(DType::kF32, std::array<std::size_t, 1>{4097});
  ParameterLayout behind = layout_of(DType::kF32, std::array<std::size_t, 3>{33, 65, 4097});
  ASSERT_TRUE(behind.slots[2].decay && alone.slots[0].decay);
  const std::uint64_t at = behind.slots[2].offset;
  FlatOptimizer small(options, alone), large(options, behind);
  std::vector<float> p = arena<float>(alone, 1, 1.0, 0), p_behind(behind.elements, 0.5F);
  std::ranges::copy(p, p_behind.begin() + static_cast<long>(at));
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    const std::vector<float> g = arena<float>(alone, 50 + step, 0.1, 0);
    std::vector<float> g_behind(behind.elements, -0.25F);
    std::ranges::copy(g, g_behind.begin() + static_cast<long>(at));
    const StepScalars scalars = step_scalars(options, step, kSteps, step, 3.0);
    small.step(scalars, bytes_of(g), bytes_of(p));
    large.step(scalars, bytes_of(std::as_const(g_behind)), bytes_of(p_behind));
  }
  EXPECT_TRUE(std::equal(p.begin(), p.begin() + 4097, p_behind.begin() + static_cast<long>(at)));
}

TEST_P(FlatOptimizerTest, GapsAreNeitherReadNorWritten) {
  const ParameterLayout layout = layout_of(DType::kF32, std::array<std::size_t, 3>{31, 65, 257});
  const float marker = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> p = arena<float>(layout, 1, 1.0, marker);
  const std::vector<float> g = arena<float>(layout, 2, 1.0, marker);
  FlatOptimizer optimizer(options_of(GetParam()), layout);
  optimizer.step(step_scalars(options_of(GetParam()), 0, 10, 0, 1.0), bytes_of(g), bytes_of(p));
  std::vector<bool> in_slot(layout.elements);
  for (const ParameterSlot& slot : layout.slots) {
    for (std::size_t i = 0; i < slot.elements; ++i) in_slot[slot.offset + i] = true;
  }
  const auto* m = reinterpret_cast<const float*>(optimizer.moment(Moment::kFirst)->data());
  for (std::size_t i = 0; i < layout.elements; ++i) {
    EXPECT_EQ(std::isfinite(p[i]), in_slot[i]) << i;
    if (!in_slot[i]) EXPECT_EQ(m[i], 0.0F);
  }
}

TEST_P(FlatOptimizerTest, WithoutGradientOnlyDecayedTensorsMove) {
  const OptimizerSection options = options_of(GetParam());
  const ParameterLayout layout = layout_of(DType::kF64, std::array<std::size_t, 2>{300, 300});
  std::vector<double> p(layout.elements, 2.0);
  const std::vector<double> g(layout.elements, 0.0);
  FlatOptimizer optimizer(options, layout);
  const StepScalars scalars = step_scalars(options, 5, 10, 0, 0.0);
  optimizer.step(scalars, bytes_of(g), bytes_of(p));
  // LAMB: the update is decay * p, so the trust ratio is 1 / decay.
  const double moved = options.kind == OptimizerKind::kAdamW
                           ? scalars.learning_rate * options.weight_decay * 2.0
                           : scalars.learning_rate * 2.0;
  EXPECT_NEAR(p[layout.slots[0].offset], 2.0 - moved, 1e-14);
  EXPECT_EQ(p[layout.slots[1].offset], 2.0) << "a bias or norm";
}

INSTANTIATE_TEST_SUITE_P(Kinds, FlatOptimizerTest,
                         ::testing::Values(OptimizerKind::kAdamW, OptimizerKind::kLamb),
                         [](const auto& info) {
                           return info.param == OptimizerKind::kAdamW ? "AdamW" : "Lamb";
                         });

TEST(Lamb, TrustRatioIsPerTensor) {
  const OptimizerSection options = options_of(OptimizerKind::kLamb);
  const ParameterLayout layout = layout_of(DType::kF64, std::array<std::size_t, 3>{64, 100, 64});
  const auto step_once = [&](double first_scale) {
    FlatOptimizer optimizer(options, layout);
    std::vector<double> p = arena<double>(layout, 3, 1.0, 0);
    for (std::size_t i = 0; i < 64; ++i) p[i] *= first_scale;
    const std::vector<double> g = arena<double>(layout, 4, 1.0, 0);
    optimizer.step(step_scalars(options, 5, 10, 0, 0.1), bytes_of(g), bytes_of(p));
    return p;
  };
  const std::vector<double> p = step_once(1.0), q = step_once(1000.0);
  for (std::size_t i = layout.slots[1].offset; i < layout.elements; ++i) EXPECT_EQ(p[i], q[i]);
  EXPECT_NE(p[0], q[0]);
}

TEST(Lamb, TrustRatioIsOneForZeroParametersAndForZeroUpdates) {
  OptimizerSection options = options_of(OptimizerKind::kLamb);
  const ParameterLayout layout = layout_of(DType::kF64, std::array<std::size_t, 2>{64, 64});
  std::vector<double> p(layout.elements, 0.0);
  std::vector<double> g(layout.elements, 0.0);
  for (std::size_t i = 0; i < 64; ++i) g[i] = 1.0;                           // zero parameters
  for (std::size_t i = 0; i < 64; ++i) p[layout.slots[1].offset + i] = 3.0;  // zero update
  FlatOptimizer optimizer(options, layout);
  const StepScalars scalars = step_scalars(options, 5, 10, 0, 0.0);
  optimizer.step(scalars, bytes_of(std::as_const(g)), bytes_of(p));
  EXPECT_NEAR(p[0], -scalars.learning_rate, 1e-9);  // m_hat / sqrt(v_hat) = 1
  EXPECT_EQ(p[layout.slots[1].offset], 3.0);
}

TEST(FlatOptimizerState, MomentsThatAreCopiedContinueTheRun) {
  const OptimizerSection options = options_of(OptimizerKind::kAdamW);
  const ParameterLayout layout = layout_of(DType::kF32, std::array<std::size_t, 2>{257, 65});
  FlatOptimizer whole(options, layout), second(options, layout);
  std::vector<float> p = arena<float>(layout, 1, 1.0, 0);
  std::vector<float> q;
  for (std::uint64_t step = 0; step < 6; ++step) {
    if (step == 3) {
      q = p;
      std::ranges::copy(*whole.moment(Moment::kFirst), second.moment(Moment::kFirst)->begin());
      std::ranges::copy(*whole.moment(Moment::kSecond), second.moment(Moment::kSecond)->begin());
    }
    const std::vector<float> g = arena<float>(layout, 10 + step, 1.0, 0);
    const StepScalars scalars = step_scalars(options, step, 6, step, 2.0);
    whole.step(scalars, bytes_of(g), bytes_of(p));
    if (step >= 3) second.step(scalars, bytes_of(g), bytes_of(q));
  }
  EXPECT_EQ(p, q);
}

TEST(SumOfSquares, OfBytesOfEitherType) {
  const std::vector<float> x = {1.0F, 2.0F, 3.0F};
  const std::vector<double> y = {0.5, -2.0};
  EXPECT_EQ(sum_of_squares(bytes_of(x), DType::kF32), 14.0);
  EXPECT_EQ(sum_of_squares(bytes_of(y), DType::kF64), 4.25);
  EXPECT_EQ(sum_of_squares({}, DType::kF32), 0.0);
}

}  // namespace
}  // namespace swarmline
