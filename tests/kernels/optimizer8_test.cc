// 8-bit optimizer state: the steps against plain loops around quantize() and dequantize(), every
// instruction set; what is stored; what is not finite.

#include "kernels/cpu/optimizer8.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/quantize.h"
#include "tests/kernels/optimizer_state.h"
#include "tests/kernels/quant_paths.h"

namespace swarmline::kernels {
namespace {

using testing::adamw_step;
using testing::first_difference;
using testing::kSizes;
using testing::lamb_step;
using testing::samples;
using testing::State8;

constexpr QuantSpec kSigned = {
    .format = QuantFormat::kDyn8, .block = kMomentBlock, .scales = ScaleKind::kF32};
constexpr QuantSpec kUnsigned = {
    .format = QuantFormat::kDyn8Unsigned, .block = kMomentBlock, .scales = ScaleKind::kF32};

struct Moments {
  std::vector<float> m, v;
};
Moments decoded(State8& s) {
  Moments out{std::vector<float>(s.m.size()), std::vector<float>(s.v.size())};
  dequantize(kSigned, s.m_scales.data(), s.m.data(), s.m.size(), FloatKind::kF32, out.m.data());
  dequantize(kUnsigned, s.v_scales.data(), s.v.data(), s.v.size(), FloatKind::kF32, out.v.data());
  return out;
}
void code(const Moments& moments, State8& s) {
  const std::size_t n = s.m.size();
  quantize(kSigned, FloatKind::kF32, moments.m.data(), n, nullptr, s.m_scales.data(), s.m.data());
  quantize(kUnsigned, FloatKind::kF32, moments.v.data(), n, nullptr, s.v_scales.data(), s.v.data());
  for (std::size_t i = 0; i < n; ++i) {
    if (s.v[i] == 0 && moments.v[i] > 0 && s.v_scales[i / kMomentBlock] > 0) s.v[i] = 1;
  }
}
void plain_move(const MomentStep<float>& c, float gradient, float& m, float& v) {
  const float g = gradient * c.gradient_scale;
  const float m_old = c.beta1 * m, m_new = c.one_minus_beta1 * g;
  m = m_old + m_new;
  const float v_old = c.beta2 * v, v_half = c.one_minus_beta2 * g;
  const float v_new = v_half * g;
  v = v_old + v_new;
}
float plain_denominator(const MomentStep<float>& c, float v) {
  const float scaled = std::sqrt(v) * c.inverse_sqrt_bias2;
  return scaled + c.eps;
}
void plain_adamw8(const AdamwStep<float>& step, const std::vector<float>& g, State8& s,
                  std::vector<float>& p) {
  Moments moments = decoded(s);
  for (std::size_t i = 0; i < p.size(); ++i) {
    plain_move(step.moments, g[i], moments.m[i], moments.v[i]);
    const float ratio = moments.m[i] / plain_denominator(step.moments, moments.v[i]);
    const float kept = p[i] * step.keep, moved = step.rate * ratio;
    p[i] = kept - moved;
  }
  code(moments, s);
}
// What LAMB's update is made of, and the update.
std::vector<float> plain_lamb8(const LambStep<float>& step, const std::vector<float>& g, State8& s,
                               const std::vector<float>& p, Moments& moments) {
  moments = decoded(s);
  std::vector<float> update(p.size());
  for (std::size_t i = 0; i < p.size(); ++i) {
    plain_move(step.moments, g[i], moments.m[i], moments.v[i]);
    const float corrected = moments.m[i] * step.moments.inverse_bias1;
    const float ratio = corrected / plain_denominator(step.moments, moments.v[i]);
    const float decayed = step.decay * p[i];
    update[i] = ratio + decayed;
  }
  return update;
}

class Optimizer8 : public ::testing::TestWithParam<const KernelTable*> {};

TEST_P(Optimizer8, AdamwMatchesThePlainLoop) {
  for (const std::size_t n : kSizes) {
    for (const std::size_t misaligned : {0, 4, 12}) {
      if (misaligned != 0 && n > 65537) continue;
      State8 state(n), plain(n);
      std::vector<float> p = samples<float>(n, 1);
      testing::Guarded<float> parameters(p, misaligned);
      for (std::uint64_t t = 1; t <= 3; ++t) {
        const AdamwStep<float> step = adamw_step(t);
        const std::vector<float> g = samples<float>(n, 10 + t);
        testing::Guarded<float> gradients(g, misaligned);
        adamw8(*GetParam(), step, gradients.data(), state.view(), parameters.data(), n);
        plain_adamw8(step, g, plain, p);
      }
      EXPECT_EQ(first_difference(parameters.values(), p), n);
      EXPECT_TRUE(state == plain) << n;
      EXPECT_TRUE(parameters.intact());
    }
  }
}

TEST_P(Optimizer8, LambMatchesThePlainLoop) {
  for (const std::size_t n : kSizes) {
    State8 state(n), plain(n);
    std::vector<float> p = samples<float>(n, 1);
    std::vector<float> parameters = p;
    for (std::uint64_t t = 1; t <= 3; ++t) {
      const LambStep<float> step = lamb_step(t);
      const std::vector<float> g = samples<float>(n, 10 + t);
      Moments moments;
      const std::vector<float> update = plain_lamb8(step, g, plain, p, moments);
      const LambNorms norms =
          lamb8_norms(*GetParam(), step, g.data(), state.view(), parameters.data(), n);
      EXPECT_EQ(norms.parameters, sum_of_squares(p.data(), n));
      EXPECT_EQ(norms.update, sum_of_squares(update.data(), n));
      EXPECT_TRUE(state == plain) << "the first pass leaves the state alone, n = " << n;

      const float rate = 0.02F;
      lamb8_apply(*GetParam(), step, rate, g.data(), state.view(), parameters.data(), n);
      for (std::size_t i = 0; i < n; ++i) {
        const float moved = rate * update[i];
        p[i] = p[i] - moved;
      }
      code(moments, plain);
      EXPECT_EQ(first_difference(parameters, p), n);
      EXPECT_TRUE(state == plain) << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, Optimizer8, ::testing::ValuesIn(available_tables()),
                         [](const auto& info) { return std::string(info.param->name); });

// The coding picks its instruction set on its own.
TEST(Optimizer8Paths, AllCodeAlike) {
  const std::size_t n = 70001;
  std::vector<State8> states;
  std::vector<std::vector<float>> parameters;
  testing::for_each_quant_path([&](const std::string& path) {
    State8 state(n);
    std::vector<float> p = samples<float>(n, 1);
    for (std::uint64_t t = 1; t <= 3; ++t) {
      const std::vector<float> g = samples<float>(n, 10 + t);
      adamw8(adamw_step(t), g.data(), state.view(), p.data(), n);
    }
    states.push_back(state);
    parameters.push_back(p);
    EXPECT_TRUE(states.back() == states.front()) << path;
    EXPECT_EQ(first_difference(parameters.back(), parameters.front()), n) << path;
  });
  EXPECT_GE(states.size(), 1U);
}

// Distance of the value of `map` nearest to x.
double nearest_distance(const float* map, double x) {
  double least = 2;
  for (int code = 0; code < 256; ++code) least = std::min(least, std::abs(map[code] - x));
  return least;
}

TEST(Moments8, AreTheNearestOfTheirMapsAndNoSecondMomentIsLost) {
  const std::size_t n = 5000;
  State8 state(n);
  std::vector<float> p(n), m(n), v(n);
  const AdamwStep<float> step = adamw_step(1);
  // Gradients over twelve decades within one block: v is as good as lost for most of them.
  std::vector<float> g = samples<float>(n, 3);
  for (std::size_t i = 0; i < n; ++i) g[i] *= std::pow(10.0F, -static_cast<float>(i % 13));
  adamw8(step, g.data(), state.view(), p.data(), n);
  std::size_t floors = 0;
  for (std::size_t i = 0; i < n; ++i) {
    plain_move(step.moments, g[i], m[i], v[i]);
    const double m_scale = state.m_scales[i / kMomentBlock];
    const double v_scale = state.v_scales[i / kMomentBlock];
    const double y = m[i] / m_scale, z = v[i] / v_scale;
    EXPECT_LE(std::abs(dyn8_codebook(true)[state.m[i]] - y),
              nearest_distance(dyn8_codebook(true), y) + 2e-6 * std::abs(y));
    if (v[i] > 0) {
      ASSERT_NE(state.v[i], 0) << i;
      const double distance = std::abs(dyn8_codebook(false)[state.v[i]] - z);
      const bool is_floor = distance > nearest_distance(dyn8_codebook(false), z) + 2e-6 * z;
      floors += is_floor ? 1 : 0;
      if (is_floor) {
        EXPECT_EQ(state.v[i], 1) << i;
      }
    } else {
      EXPECT_EQ(state.v[i], 0) << i;
    }
  }
  EXPECT_GT(floors, n / 10);
}

TEST(Moments8, LaterSmallGradientsDoNotDivideByEpsAlone) {
  // After a large gradient elsewhere in the block, an element with m above 0 and a v below the map.
  State8 state(kMomentBlock);
  std::vector<float> p(kMomentBlock), g(kMomentBlock, 1e-4F);
  g[0] = 1.0F;
  adamw8(adamw_step(1), g.data(), state.view(), p.data(), kMomentBlock);
  ASSERT_EQ(state.v[1], 1);
  std::ranges::fill(p, 0.0F);
  std::ranges::fill(g, 0.0F);
  const AdamwStep<float> step = adamw_step(2);
  adamw8(step, g.data(), state.view(), p.data(), kMomentBlock);
  EXPECT_LT(std::abs(p[1]), 2 * step.rate);
}

TEST(Moments8, ANonFiniteGradientIsNeverSilentlyANumber) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 3e38F}) {
    const std::size_t n = 3 * kMomentBlock;
    State8 state(n);
    std::vector<float> p(n, 1.0F), g(n, 0.01F);
    AdamwStep<float> step = adamw_step(1);
    step.moments.gradient_scale = 1;
    g[kMomentBlock + 7] = bad;
    adamw8(step, g.data(), state.view(), p.data(), n);
    EXPECT_EQ(std::isfinite(p[kMomentBlock + 7]), std::isfinite(bad));
    EXPECT_TRUE(std::isnan(state.v_scales[1]));
    g[kMomentBlock + 7] = 0.01F;
    adamw8(step, g.data(), state.view(), p.data(), n);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(std::isnan(p[i]), i / kMomentBlock == 1) << bad << " at " << i;
    }
  }
}

TEST(Moments8, ZeroGradientsLeaveAZeroState) {
  State8 state(700);
  std::vector<float> p(700, 2.0F), g(700, 0.0F);
  AdamwStep<float> step = adamw_step(1);
  step.keep = 1;
  adamw8(step, g.data(), state.view(), p.data(), 700);
  for (const float value : p) EXPECT_EQ(value, 2.0F);
  for (const float scale : state.v_scales) EXPECT_EQ(scale, 0.0F);
}

}  // namespace
}  // namespace swarmline::kernels
