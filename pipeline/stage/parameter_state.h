// The versions of a stage's parameters that live at one time, its gradient accumulators and its
// optimizer.
//
//   delay 0: one arena. Step t computes on version t; a commit changes it in place. delay 1: two.
//   Step t+1 computes on version t while step t is averaged into version t+1; activate() copies the
//   committed
//            arena into the computing one when the step that used the older version is sealed.
//   Gradients: `open` takes what is computed, seal() freezes it as `sealed` (read-only until the
//              next seal), `reduced` is where the average of it is written. Reduction is out of
//              place.
//   Optimizer: on a CUDA stage, state and step are in the device's memory, or in the host's with
//              optimizer.state_memory = "host"; the committed parameters are in the host's, too.
//   Errors:  kDevice, of the device's optimizer.
//   Thread:  functions marked [device] run in device jobs only; the rest are plain reads on the
//            control thread.
#pragma once

#include <cstdint>

#include "engine/base/bytes.h"
#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/model/stage_model.h"
#include "engine/optimizer/flat_optimizer.h"

namespace swarmline {

class ParameterState {
 public:
  ParameterState(StageModel& model, const RunConfig& config);

  MutableBytes open_accumulator() { return open_.bytes(); }
  BytesView sealed() const { return sealed_.bytes(); }
  MutableBytes reduced() { return reduced_.bytes(); }
  BytesView committed_parameters() const;
  const ParameterLayout& layout() const { return model_.layout(); }

  void seal();  // [device]
  // [device] optimizer step of `reduced` on the committed parameters
  Result<void> apply(const StepScalars& scalars);
  void activate();                       // [device] compute on the committed version from now on
  Result<std::uint64_t> digest() const;  // [device] of committed parameters and optimizer state

 private:
  MutableBytes committed_bytes();

  StageModel& model_;
  bool delayed_;
  Result<FlatOptimizer> optimizer_;  // or why there is none: apply() and digest() say it
  Buffer committed_;                 // delay 1 only; delay 0 commits into the model's own arena
  Buffer open_, sealed_, reduced_;
};

}  // namespace swarmline
