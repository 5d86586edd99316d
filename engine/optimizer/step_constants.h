// The kernels' constants of one step: each computed in double and rounded once.
#pragma once

#include <cmath>

#include "engine/config/run_config.h"
#include "engine/optimizer/flat_optimizer.h"
#include "kernels/optimizer.h"

namespace swarmline {

template <typename T>
kernels::MomentStep<T> moment_step(const OptimizerSection& options, const StepScalars& scalars) {
  return {.gradient_scale = static_cast<T>(scalars.clip_scale),
          .beta1 = static_cast<T>(options.beta1),
          .one_minus_beta1 = static_cast<T>(1 - options.beta1),
          .beta2 = static_cast<T>(options.beta2),
          .one_minus_beta2 = static_cast<T>(1 - options.beta2),
          .inverse_bias1 = static_cast<T>(1 / scalars.bias_correction1),
          .inverse_sqrt_bias2 = static_cast<T>(1 / std::sqrt(scalars.bias_correction2)),
          .eps = static_cast<T>(options.eps)};
}

template <typename T>
kernels::AdamwStep<T> adamw_step(const OptimizerSection& options, const StepScalars& scalars,
                                 bool decays) {
  const double decay = decays ? options.weight_decay : 0.0;
  return {.moments = moment_step<T>(options, scalars),
          .keep = static_cast<T>(1 - scalars.learning_rate * decay),
          .rate = static_cast<T>(scalars.learning_rate / scalars.bias_correction1)};
}

template <typename T>
kernels::LambStep<T> lamb_step(const OptimizerSection& options, const StepScalars& scalars,
                               bool decays) {
  return {.moments = moment_step<T>(options, scalars),
          .decay = static_cast<T>(decays ? options.weight_decay : 0.0)};
}

}  // namespace swarmline
