// What a stage holds of its device's memory for as long as it has its seat, by the run's config.
// All of it but the island's sum is taken with the seat (ParameterState::take_memory()), before
// what is left is measured for microbatches; whether an island has its sum there nobody knows
// before a seal names a fabric, so that as much is left alone.
//   Shapes:  arenas in the stage's layout, as parameter_state.h lists them.
//   Units:   bytes. Thread: any; pure. Errors: none; the config is checked.
#pragma once

#include <cstdint>

#include "engine/config/run_config.h"
#include "engine/model/model_spec.h"

namespace swarmline {

struct SeatMemory {
  std::uint64_t parameters = 0;  // all versions, and what products read of them
  std::uint64_t gradients = 0;   // sums of the open steps, and the averaged gradient
  std::uint64_t optimizer = 0;   // both moments
  std::uint64_t residuals = 0;   // of error feedback
  std::uint64_t island = 0;      // its sum, where the stage's peers sum past links

  std::uint64_t taken() const { return parameters + gradients + optimizer + residuals; }
};

// On a CUDA device; what a CPU's peer holds is in the host's memory.
SeatMemory seat_memory(const RunConfig& config, const ModelSpec& model, const StageSpec& stage);
// Whether error feedback's residuals are in the device's memory where the optimizer steps there:
// with islands members read and write them in the host's.
bool keeps_residuals_there(const RunConfig& config);

}  // namespace swarmline
