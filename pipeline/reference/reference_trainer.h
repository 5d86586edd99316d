// The oracle: the same config in one process with no pipeline. One stage, microbatches one after the other, sums, one clip,
// one optimizer step; the same data order, dropout masks, initialisation, schedule and delay as a swarm.
//   Thread:  blocking, the caller's. Errors: user mistakes and kDevice.
//   Bounds:  one microbatch's graph at a time.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/config/run_config.h"
#include "engine/model/stage_model.h"
#include "pipeline/stage/stage_peer.h"

namespace swarmline {

// What a mutation test changes; a healthy run has none of it.
struct ReferenceMutation {
  enum class Kind { kNone, kDropMicrobatch, kDoubleMicrobatch, kMissAtOneStage, kLearningRate, kClipBeforeReduce };
  Kind kind = Kind::kNone;
};

struct ReferenceOptions {
  RunConfig config;
  ModelSpec model;
  int threads = 1;
  std::uint64_t permute_sums = 0;   // 0: in index order; otherwise a seed: microbatches are summed in that order
  std::uint64_t eval_sequences = 0;
  ReferenceMutation mutation;
};

struct ReferenceStep {
  std::uint64_t step = 0;
  double loss = 0;          // nats per token
  double gradient_norm = 0;
  double learning_rate = 0;
};

struct ReferenceResult {
  Buffer parameters;        // one stage's arena, model dtype
  ParameterLayout layout;
  double eval_loss = 0;     // after the last step, when eval_sequences > 0
};

Result<ReferenceResult> run_reference(const ReferenceOptions& options, MicrobatchSource& source,
                                      const std::function<void(const ReferenceStep&)>& on_step);

}  // namespace swarmline
