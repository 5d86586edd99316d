// AdamW (Loshchilov & Hutter 2019) and LAMB (You et al. 2020) on a stage's flat arena.
//   Same bits everywhere: only IEEE add, mul, div, sqrt in a fixed order, no contraction; the
//                         learning rate, clip scale and bias corrections come with the commit
//                         (StepScalars), so every replica computes the same.
//   Shapes:    parameters, gradients, and both moments have the layout's size and dtype (fp32 or
//              fp64), any alignment. The gaps between slots are neither read nor written.
//   LAMB:      trust ratio per tensor = |w| / |update| (1 if either is 0); norms in fixed-order
//              double sums.
//   Decay:     decoupled, only where the slot says so; it enters LAMB's update before the trust
//              ratio.
//   Ownership: owns the moments; parameters and gradients are the caller's. Thread: one at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/base/bytes.h"
#include "engine/config/run_config.h"
#include "engine/model/model_spec.h"

namespace swarmline {

// What travels in a commit so that nobody computes it differently.
struct StepScalars {
  double learning_rate = 0;
  double clip_scale = 1;        // multiplies the reduced gradient
  double bias_correction1 = 1;  // 1 - beta1^t
  double bias_correction2 = 1;  // 1 - beta2^t
};

// Learning rate of `step` (0-based): warm-up rises linearly and reaches lr at its last step;
// from there the schedule goes to final_lr * lr at steps_total ("constant" stays at lr).
double learning_rate_at(const OptimizerSection& options, std::uint64_t step,
                        std::uint64_t steps_total);
// clip / norm if norm > clip > 0, else 1.
double clip_scale(const OptimizerSection& options, double global_norm);
StepScalars step_scalars(const OptimizerSection& options, std::uint64_t step,
                         std::uint64_t steps_total, std::uint64_t updates_before,
                         double global_norm);

class FlatOptimizer {
 public:
  FlatOptimizer(const OptimizerSection& options, const ParameterLayout& layout);
  void step(const StepScalars& scalars, BytesView gradients, MutableBytes parameters);
  MutableBytes first_moment() { return m_.bytes(); }
  MutableBytes second_moment() { return v_.bytes(); }
  std::uint64_t state_bytes() const { return m_.size() + v_.size(); }

 private:
  OptimizerSection options_;
  ParameterLayout layout_;
  Buffer m_, v_;
};

// Sum of squares of `elements` values of `dtype`, in a fixed blocked order, in double.
double sum_of_squares(BytesView values, DType dtype);

}  // namespace swarmline
