// Where the optimizer's state of each tensor lies, in the host's memory as well as a device's.
//   fp32 (fp64):  both moments like the parameters' arena: an element's moment lies where it does.
//   8bit:         slots one after the other, each part from a 64-byte boundary on. Tensors of at
//                 least kCodedElementsMin elements that are no embedding: one code an element, then
//                 one fp32 scale per kMomentBlock elements (kernels/format/adam8.h). Others: fp32.
//   Both moments have the same layout, except that a matrix which Muon steps has no second one:
//   with Muon, second moments lie one after the other as 8bit has them. What lies between the parts
//   is zero.
//   Thread: pure functions of plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/config/run_config.h"
#include "engine/model/model_spec.h"
#include "kernels/optimizer_plan.h"

namespace swarmline {

// A small tensor saves nothing worth its error; rows of an embedding get gradients so rarely that
// one scale for several of them loses the rare ones.
inline constexpr std::uint64_t kCodedElementsMin = 4096;

struct MomentPlace {
  std::uint64_t values_at = 0;  // bytes into a moment's state: values or codes
  std::uint64_t scales_at = 0;  // coded only
};
struct SlotState {
  bool coded = false;
  bool has_second = true;
  MomentPlace first, second;
};
struct StateLayout {
  std::vector<SlotState> slots;  // as the parameters' layout has them
  std::uint64_t first_bytes = 0, second_bytes = 0;
  std::uint64_t bytes() const { return first_bytes + second_bytes; }
};
StateLayout make_state_layout(const OptimizerSection& options, const ParameterLayout& layout);

// The work list of the CUDA kernels, in their order. fp32 parameters only, not with Muon.
struct WorkList {
  std::vector<kernels::OptimizerChunk> chunks;  // those with fp32 state first
  std::uint32_t chunks_fp32 = 0;
  std::vector<kernels::OptimizerTensor> tensors;  // indexed by chunk.tensor
};
WorkList make_work_list(const ParameterLayout& layout, const StateLayout& state);

}  // namespace swarmline
