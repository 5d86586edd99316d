// The device jobs of a stage: decode, compute, encode. Each function builds a job body that touches
// the model on the device's thread and writes into a result that the completion reads; inputs are
// frozen while the job is under way. Source: one microbatch's life, ARCHITECTURE.md.
#pragma once

#include <memory>
#include <optional>

#include "pipeline/stage/microbatch_task.h"
#include "pipeline/stage/stage_context.h"

namespace swarmline {

// How a computed tensor leaves.
struct SendPlan {
  CodecSpec codec;
  std::optional<kernels::StochasticKey> key;  // none: rounded to nearest
  bool sample = false;                        // keep the tensor's beginning for the codec monitor
};
inline constexpr std::size_t kSampleElementsMax = 4 * std::size_t{kWireTileElements};

struct ForwardResult {
  SharedBytes wire;    // encoded output; empty at the last stage
  SharedBytes sample;  // of the output, where the plan asked for one
  double loss_sum = 0;
  bool finite = true;
};

struct BackwardResult {
  SharedBytes wire;  // encoded input gradient; empty at stage 0 or when nobody below wants it
  SharedBytes sample;
  bool finite = true;
};

struct BackwardPlan {
  bool weight_gradients = true;
  bool input_gradient = true;
};

std::function<Result<void>()> forward_body(StageContext& context, TaskPtr task, SendPlan send,
                                           std::shared_ptr<ForwardResult> result);
std::function<Result<void>()> backward_body(StageContext& context, TaskPtr task, BackwardPlan plan,
                                            SendPlan send, std::shared_ptr<BackwardResult> result);
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
