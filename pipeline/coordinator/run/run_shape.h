// What a run is made of and never changes: its config, the cut of its model, the groups that
// average, how many microbatches a phase has.
//   Ownership: the options outlive it. Thread: plain values, read by all parts of a coordinator.
//   Errors:    a model that can't be cut as the config says is CHECKed: the config was checked
//              before.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "engine/model/model_spec.h"
#include "pipeline/coordinator/run/coordinator_options.h"
#include "pipeline/protocol/group_plan.h"

namespace swarmline {

struct RunShape {
  explicit RunShape(const CoordinatorOptions& of);

  std::uint32_t stage_count() const { return static_cast<std::uint32_t>(stages.size()); }
  bool is_last(StageId stage) const { return stage.value + 1U == stages.size(); }
  std::uint32_t microbatches_of(PhaseKind kind) const;
  std::uint64_t elements_of(GroupId group) const;  // summed by the group

  const CoordinatorOptions& options;
  const RunConfig& config;
  std::vector<StageSpec> stages;
  std::vector<ParameterLayout> layouts;  // by stage
  GroupPlan groups;
};

}  // namespace swarmline
