// AdamW (Loshchilov & Hutter 2019), LAMB (You et al. 2020) and Muon (muon.h) on a stage's flat
// arena.
//   Same bits everywhere: only IEEE add, mul, div, sqrt in a fixed order, no contraction; the
//                         learning rate, clip scale and bias corrections come with the commit
//                         (StepScalars), so every replica computes the same.
//   Shapes:    parameters and gradients have the layout's size and dtype (fp32 or fp64), any
//              alignment. The gaps between slots are neither read nor written.
//   State:     two moments, as state_layout.h lays them out; in this process's memory, or in that
//              of a device, where the step is made then, too (not Muon's: device_optimizer.h).
//   Muon:      of the layers' matrices; AdamW steps the other tensors.
//   LAMB:      trust ratio per tensor = |w| / |update| (1 if either is 0); norms in fixed-order
//              double sums.
//   Decay:     decoupled, only where the slot says so; it enters LAMB's update before the trust
//              ratio.
//   Not finite: no such gradient may come here: a commit whose reduced gradient is not finite is a
//              skip. One that does makes its parameter not finite (8-bit state: its block's, one
//              step later); it never becomes a number again.
//   Memory:    a step of Muon takes muon_scratch_bytes() more while it runs.
//   Ownership: owns the moments; parameters and gradients are the caller's. Thread: one at a time.
//   Errors:    kDevice from a device; none otherwise.
#pragma once

#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/model/device_optimizer.h"
#include "engine/model/model_spec.h"
#include "engine/optimizer/state_layout.h"

namespace swarmline {

// What travels in a commit so that nobody computes it differently.
struct StepScalars {
  double learning_rate = 0;
  double clip_scale = 1;        // multiplies the reduced gradient
  double bias_correction1 = 1;  // 1 - beta1^t
  double bias_correction2 = 1;  // 1 - beta2^t
};

// Learning rate of `step` (0-based): warm-up rises linearly and reaches lr at its last step;
// from there the schedule goes to final_lr * lr at options.lr_decay_steps, else at steps_total, and
// stays there ("constant" stays at lr; "wsd" does until the last decay_ratio of these steps, and
// then falls linearly). Source of wsd: Hu et al., MiniCPM, 2024.
double learning_rate_at(const OptimizerSection& options, std::uint64_t step,
                        std::uint64_t steps_total);
// clip / norm if norm > clip > 0, else 1.
double clip_scale(const OptimizerSection& options, double global_norm);
StepScalars step_scalars(const OptimizerSection& options, std::uint64_t step,
                         std::uint64_t steps_total, std::uint64_t updates_before,
                         double global_norm);

class FlatOptimizer {
 public:
  // With a device: state and step are there.
  FlatOptimizer(const OptimizerSection& options, const ParameterLayout& layout,
                std::unique_ptr<DeviceOptimizer> device = nullptr);
  // In this process's memory: without a device.
  Result<void> step(const StepScalars& scalars, BytesView gradients, MutableBytes parameters);
  // In a device's: with one.
  Result<void> step_there(const StepScalars& scalars, DeviceAddress gradients,
                          DeviceAddress parameters);
  DeviceOptimizer* device() const { return device_.get(); }

  // All of a moment's state, to read, or to write and say so. From a device they are copies, which
  // the next step drops.
  Result<MutableBytes> moment(Moment moment);
  Result<void> moments_changed();
  Result<void> add_state_to(RollingHash& hash) const;  // each moment's kernels::digest()
  std::uint64_t state_bytes() const { return state_.bytes(); }

 private:
  std::uint64_t bytes_of(Moment moment) const {
    return moment == Moment::kFirst ? state_.first_bytes : state_.second_bytes;
  }

  OptimizerSection options_;
  ParameterLayout layout_;
  StateLayout state_;
  std::unique_ptr<DeviceOptimizer> device_;
  Buffer m_, v_;
};

// Sum of squares of `elements` values of `dtype`, in a fixed blocked order, in double.
double sum_of_squares(BytesView values, DType dtype);

}  // namespace swarmline
