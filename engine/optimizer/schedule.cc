#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "engine/optimizer/flat_optimizer.h"

namespace swarmline {

double learning_rate_at(const OptimizerSection& options, std::uint64_t step,
                        std::uint64_t steps_total) {
  if (step < options.warmup_steps) {
    return options.lr * static_cast<double>(step + 1) / static_cast<double>(options.warmup_steps);
  }
  if (options.schedule == LearningSchedule::kConstant || steps_total <= options.warmup_steps)
    return options.lr;
  const double span = static_cast<double>(steps_total - options.warmup_steps);
  const double progress = std::min(1.0, static_cast<double>(step - options.warmup_steps) / span);
  const double last = options.lr * options.final_lr;
  if (options.schedule == LearningSchedule::kLinear)
    return options.lr + (last - options.lr) * progress;
  return last + (options.lr - last) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

double clip_scale(const OptimizerSection& options, double global_norm) {
  return options.clip > 0 && global_norm > options.clip ? options.clip / global_norm : 1.0;
}

StepScalars step_scalars(const OptimizerSection& options, std::uint64_t step,
                         std::uint64_t steps_total, std::uint64_t updates_before,
                         double global_norm) {
  const double updates = static_cast<double>(updates_before + 1);
  return {.learning_rate = learning_rate_at(options, step, steps_total),
          .clip_scale = clip_scale(options, global_norm),
          .bias_correction1 = 1 - std::pow(options.beta1, updates),
          .bias_correction2 = 1 - std::pow(options.beta2, updates)};
}

}  // namespace swarmline
