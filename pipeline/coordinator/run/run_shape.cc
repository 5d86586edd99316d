#include "pipeline/coordinator/run/run_shape.h"

#include "balancer/cut.h"
#include "base/check.h"

namespace swarmline {

namespace {

std::vector<StageSpec> cut_of(const CoordinatorOptions& options) {
  CutOptions cut{.stages = options.config.pipeline.stages,
                 .share_layers = options.model.shape.share_layers,
                 .stage_speeds = {},
                 .layers = options.config.pipeline.layers};
  auto stages = cut_layers(model_costs(options.model), cut);
  SWARMLINE_CHECK_MSG(stages.has_value(), stages ? "" : stages.error().what);
  return *stages;
}

std::vector<ParameterLayout> layouts_of(const ModelSpec& model,
                                        const std::vector<StageSpec>& stages) {
  std::vector<ParameterLayout> layouts;
  for (const StageSpec& stage : stages) layouts.push_back(make_layout(model, stage));
  return layouts;
}

}  // namespace

RunShape::RunShape(const CoordinatorOptions& of)
    : options(of),
      config(of.config),
      stages(cut_of(of)),
      layouts(layouts_of(of.model, stages)),
      groups(stage_count(), layouts.front().has_tied()) {}

std::uint32_t RunShape::microbatches_of(PhaseKind kind) const {
  return kind == PhaseKind::kEval
             ? static_cast<std::uint32_t>(options.eval_sequences / config.batch.microbatch)
             : config.microbatches_per_step();
}

std::uint64_t RunShape::elements_of(GroupId group) const {
  const StageId stage = groups.stages_of(group).front();
  return groups.region_of(group, layouts[stage.value]).elements;
}

}  // namespace swarmline
