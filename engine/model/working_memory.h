// What a stage's model takes of a device's memory beside its parameters: for each microbatch under
// way, and besides while it computes one. Bytes; pure.
//   Source:  the graphs of stage_network.cc and ops.cc, tensor by tensor; tests hold it to what the
//            allocator says on the CPU.
//   Bounds:  none of its own. Thread: any.
#pragma once

#include <cstdint>

#include "engine/model/model_spec.h"

namespace swarmline {

// Kept from forward to backward on a CUDA device, where matrix products and what goes into them are
// bf16 (fp64: as on the CPU, which retained_bytes() is of).
std::uint64_t retained_bytes_on_cuda(const ModelSpec& spec, const StageSpec& stage,
                                     std::uint32_t rows, bool recompute);

// What one backward has at its worst moment, beyond what was kept for it: gradients of activations,
// the head's probabilities and their gradient.
std::uint64_t working_bytes(const ModelSpec& spec, const StageSpec& stage, std::uint32_t rows);

// Kept, of a microbatch whose backward was split, until its weight gradients are added: what layers
// read and the gradients of what they gave.
std::uint64_t bytes_until_added(const ModelSpec& spec, const StageSpec& stage, std::uint32_t rows);

}  // namespace swarmline
