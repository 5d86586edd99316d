#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "engine/optimizer/flat_optimizer.h"

namespace swarmline {
namespace {

// The step from which the learning rate falls, below `end`.
std::uint64_t decay_begins(const OptimizerSection& options, std::uint64_t end) {
  if (options.schedule != LearningSchedule::kWsd) return options.warmup_steps;
  const double decaying = std::ceil(options.decay_ratio * static_cast<double>(end));
  const auto steps = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(decaying), 1, end);
  return std::max(options.warmup_steps, end - steps);
}

}  // namespace

double learning_rate_at(const OptimizerSection& options, std::uint64_t step,
                        std::uint64_t steps_total) {
  const std::uint64_t end = options.lr_decay_steps > 0 ? options.lr_decay_steps : steps_total;
  if (step < options.warmup_steps) {
    return options.lr * static_cast<double>(step + 1) / static_cast<double>(options.warmup_steps);
  }
  if (options.schedule == LearningSchedule::kConstant || end <= options.warmup_steps)
    return options.lr;
  const std::uint64_t begin = decay_begins(options, end);
  if (step < begin) return options.lr;
  const double span = static_cast<double>(end - begin);
  const double progress = std::min(1.0, static_cast<double>(step - begin) / span);
  const double last = options.lr * options.final_lr;
  if (options.schedule != LearningSchedule::kCosine)
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
