// Steps and 8-bit states that the tests of optimizer kernels share.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/optimizer.h"
#include "tests/kernels/samples.h"

namespace swarmline::testing {

inline kernels::MomentStep<float> moments_at(std::uint64_t t) {
  const double b1 = 0.9, b2 = 0.95;
  return {.gradient_scale = 0.3F,
          .beta1 = 0.9F,
          .one_minus_beta1 = 0.1F,
          .beta2 = 0.95F,
          .one_minus_beta2 = 0.05F,
          .inverse_bias1 = static_cast<float>(1 / (1 - std::pow(b1, t))),
          .inverse_sqrt_bias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(b2, t))),
          .eps = 1e-8F};
}
inline kernels::AdamwStep<float> adamw_step(std::uint64_t t, float decay = 0.1F) {
  const kernels::MomentStep<float> moments = moments_at(t);
  return {.moments = moments, .keep = 1 - 0.01F * decay, .rate = 0.01F * moments.inverse_bias1};
}
inline kernels::LambStep<float> lamb_step(std::uint64_t t, float decay = 0.1F) {
  return {.moments = moments_at(t), .decay = decay};
}

struct State8 {
  explicit State8(std::size_t n) : m(n), v(n), m_scales(blocks(n)), v_scales(blocks(n)) {}
  static std::size_t blocks(std::size_t n) {
    return (n + kernels::kMomentBlock - 1) / kernels::kMomentBlock;
  }
  kernels::Moments8 view() { return {m.data(), m_scales.data(), v.data(), v_scales.data()}; }
  bool operator==(const State8& other) const {
    return m == other.m && v == other.v &&
           first_difference(m_scales, other.m_scales) == m_scales.size() &&
           first_difference(v_scales, other.v_scales) == v_scales.size();
  }

  std::vector<std::uint8_t> m, v;
  std::vector<float> m_scales, v_scales;
};

}  // namespace swarmline::testing
