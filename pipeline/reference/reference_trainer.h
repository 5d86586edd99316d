// The oracle: the same config in one process with no pipeline. One stage, microbatches one after
// the other, sums, one clip, one optimizer step; the same data order, dropout masks,
// initialisation, schedule and delay as a swarm, and its learned boundaries where the swarm is cut.
// With delay 1 the gradient of step t is computed on version max(t - 1, 0) and applied to version
// t.
//   Thread:  blocking, the caller's. Errors: user mistakes and kDevice.
//   Bounds:  one microbatch's graph at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/config/run_config.h"
#include "engine/model/stage_model.h"
#include "pipeline/source/microbatch_source.h"

namespace swarmline {

// What a mutation test changes; a healthy run has none of it. Microbatch mutations act on
// microbatch 1 of step 1.
struct ReferenceMutation {
  enum class Kind : std::uint8_t {
    kNone,
    kDropMicrobatch,
    kDoubleMicrobatch,
    kMissAtOneStage,  // not added for the layers of the first half
    kLearningRate,    // 1 % larger
    kClipBeforeReduce,
  };
  Kind kind = Kind::kNone;
};

// From this step on it is trained with these settings (pipeline/coordinator/run/segments.h).
struct ReferenceSegment {
  std::uint64_t first_step = 0;
  RunConfig config;                    // but for its steps, which only its schedule knows of
  MicrobatchSource* source = nullptr;  // outlives the reference
};

struct ReferenceOptions {
  RunConfig config;
  ModelSpec model;
  std::string device = "cpu";
  int threads = 1;
  // 0: summed in index order; otherwise a seed: each step's microbatches in an order of its own.
  std::uint64_t permute_sums = 0;
  std::uint64_t eval_sequences = 0;  // a multiple of the microbatch
  ReferenceMutation mutation;
  // Of a run that was changed, from step 0 on; empty: all of it is trained with `config`.
  std::vector<ReferenceSegment> segments = {};
  // Fills the arena with the parameters to begin with; empty: they are drawn from the seed.
  std::function<Result<void>(const ParameterLayout&, MutableBytes arena)> initial;
  // Tests sit between the trainer and the model; empty: make_stage_model.
  std::function<Result<std::unique_ptr<StageModel>>(const ModelSpec&, const StageSpec&,
                                                    const StageModelOptions&)>
      make_model;
};

struct ReferenceStep {
  std::uint64_t step = 0;
  double loss = 0;           // nats per token
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;
  std::uint64_t tokens = 0;
};

struct ReferenceResult {
  Buffer parameters;  // one stage's arena, model dtype
  ParameterLayout layout;
  std::vector<std::uint32_t> boundaries;  // layers behind a learned boundary
  double eval_loss = 0;  // nats per token after the last step, when eval_sequences > 0
};

Result<ReferenceResult> run_reference(const ReferenceOptions& options, MicrobatchSource& source,
                                      const std::function<void(const ReferenceStep&)>& on_step);

}  // namespace swarmline
