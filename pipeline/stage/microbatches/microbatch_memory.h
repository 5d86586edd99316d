// What one microbatch holds of a stage's memory at most, from its admission until the report of its
// contribution is acknowledged: its input as it came, what the model keeps for the backward, its
// output as it was sent on (until the gradient has been decoded), and one decoded tensor: first the
// input, then the gradient.
#pragma once

#include <cstdint>

#include "engine/model/working_memory.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/microbatches/microbatch_task.h"

namespace swarmline {

// Between forward and backward. A model that takes wire buffers computes on a CUDA device.
inline std::uint64_t kept_bytes(const StageContext& context, std::uint32_t rows) {
  return context.model.takes_wire()
             ? retained_bytes_on_cuda(context.spec, context.stage, rows, context.recompute)
             : retained_bytes(context.spec, context.stage, rows, context.recompute);
}

inline std::uint64_t microbatch_bytes(const StageContext& context, const MicrobatchTask& task) {
  const std::uint64_t elements = context.activation_elements(task.rows);
  const DType dtype = context.spec.shape.stream_dtype();
  std::uint64_t bytes =
      task.input.size() + elements * size_bytes(dtype) + kept_bytes(context, task.rows);
  if (!context.last()) {
    const auto& codecs = context.codecs.of(task.id.microbatch.phase, context.stage.stage.value);
    bytes += encoded_bytes(codecs.forward, elements, dtype);
  }
  return bytes;
}

}  // namespace swarmline
