#include "pipeline/stage/common/seat_memory.h"

#include "engine/model/device_optimizer.h"
#include "engine/optimizer/state_layout.h"
#include "pipeline/averaging/averaging_codecs.h"

namespace swarmline {

bool keeps_residuals_there(const RunConfig& config) {
  return keeps_residuals(config) && config.net.islands == Islands::kNone;
}

SeatMemory seat_memory(const RunConfig& config, const ModelSpec& model, const StageSpec& stage) {
  const ParameterLayout layout = make_layout(model, stage);
  const std::uint64_t bytes = layout.bytes();
  const bool f32 = model.shape.dtype == DType::kF32;
  const bool narrow = f32 && model.shape.precision != Precision::kF32;
  const bool steps_there = f32 && steps_on_device(config.optimizer);
  const bool delayed = config.pipeline.delay == 1;
  SeatMemory memory;
  // Values, and what products read; where the optimizer steps there, the committed version.
  memory.parameters =
      (delayed ? 2 : 1) * (bytes + (narrow ? bytes / 2 : 0)) + (steps_there && delayed ? bytes : 0);
  memory.gradients = (delayed ? 2 : 1) * bytes + (steps_there ? bytes : 0);
  if (!steps_there) return memory;
  memory.optimizer = make_state_layout(config.optimizer, layout).bytes();
  if (keeps_residuals_there(config)) memory.residuals = 2 * bytes;
  if (config.net.islands == Islands::kHost && config.net.fabric != FabricChoice::kNone &&
      !keeps_residuals(config) && config.pipeline.peers.at(stage.stage.value) > 1)
    memory.island = bytes;
  return memory;
}

}  // namespace swarmline
