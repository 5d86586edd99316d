// One element of each optimizer step, shared by the CPU loops and the CUDA twins; see element.h.
#pragma once

#include "kernels/element.h"
#include "kernels/optimizer.h"

namespace swarmline::kernels {

SWARMLINE_ELEMENT float square_root(float value) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(value);
#else
  return __builtin_sqrtf(value);
#endif
}
SWARMLINE_ELEMENT double square_root(double value) {
#if defined(__CUDA_ARCH__)
  return __dsqrt_rn(value);
#else
  return __builtin_sqrt(value);
#endif
}

template <typename T>
SWARMLINE_ELEMENT void move_moments(const MomentStep<T>& step, T gradient, T& m, T& v) {
  const T g = gradient * step.gradient_scale;
  m = step.beta1 * m + step.one_minus_beta1 * g;
  v = step.beta2 * v + (step.one_minus_beta2 * g) * g;
}
template <typename T>
SWARMLINE_ELEMENT T denominator(const MomentStep<T>& step, T v) {
  return square_root(v) * step.inverse_sqrt_bias2 + step.eps;
}
template <typename T>
SWARMLINE_ELEMENT void adamw_element(const AdamwStep<T>& step, T gradient, T& m, T& v,
                                     T& parameter) {
  move_moments(step.moments, gradient, m, v);
  parameter = parameter * step.keep - step.rate * (m / denominator(step.moments, v));
}
template <typename T>
SWARMLINE_ELEMENT T lamb_update(const LambStep<T>& step, T m, T v, T parameter) {
  return (m * step.moments.inverse_bias1) / denominator(step.moments, v) + step.decay * parameter;
}

}  // namespace swarmline::kernels
