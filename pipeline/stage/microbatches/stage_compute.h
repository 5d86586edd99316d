// The device jobs of a stage: decode, compute, encode; the model does all three where it takes wire
// buffers. Each function builds a job's body, and its finish where the model's device goes on by
// itself. A body touches the model on the device's thread; a finish waits for what the body began.
// Both write into a result that the completion reads; inputs are frozen while the job is under way.
//   Source: one microbatch's life, ARCHITECTURE.md.
#pragma once

#include <memory>

#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/microbatches/microbatch_task.h"

namespace swarmline {

struct ForwardResult {
  SharedBytes wire;        // encoded output; empty at the last stage
  TensorSamplePtr sample;  // of the output, where the request asked for one
  double loss_sum = 0;
  bool finite = true;
  bool begun = false;  // the model keeps what a backward needs, whatever came of it then
};

struct BackwardResult {
  SharedBytes wire;  // encoded input gradient; empty at stage 0 or when nobody below wants it
  TensorSamplePtr sample;
  bool finite = true;
};

struct BackwardPlan {
  bool weight_gradients = true;
  bool input_gradient = true;
  bool add_later = false;  // weight gradients: by add_weights_body()
};

void set_forward(Job& job, StageContext& context, TaskPtr task, WireRequest send,
                 std::shared_ptr<ForwardResult> result);
void set_backward(Job& job, StageContext& context, TaskPtr task, BackwardPlan plan,
                  WireRequest send, std::shared_ptr<BackwardResult> result);
// Adds the weight gradients that a backward left for later.
void set_adding(Job& job, StageContext& context, TaskPtr task);
// Runs the microbatch again and subtracts its weight gradients from its step's accumulator.
std::function<Result<void>()> subtract_body(StageContext& context, TaskPtr task);

// Target tokens as they travel: uint16 where the vocabulary fits, else uint32.
constexpr std::size_t target_bytes(std::uint32_t vocab) {
  return vocab <= 65536 ? 2 : 4;
}
std::string pack_targets(std::span<const std::int32_t> targets, std::uint32_t vocab);
// kCorrupt when the size or a token does not fit.
Result<SharedBytes> unpack_targets(std::string_view packed, std::uint64_t count,
                                   std::uint32_t vocab);

}  // namespace swarmline
