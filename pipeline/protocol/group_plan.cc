#include "pipeline/protocol/group_plan.h"

#include <algorithm>

namespace swarmline {

std::vector<GroupId> GroupPlan::groups() const {
  std::vector<GroupId> groups;
  for (std::uint32_t group = 0; has(GroupId{group}); ++group) groups.emplace_back(group);
  return groups;
}

std::vector<StageId> GroupPlan::stages_of(GroupId group) const {
  if (!is_shared(group)) return {StageId{static_cast<std::uint16_t>(group.value)}};
  return {StageId{0}, StageId{static_cast<std::uint16_t>(stages_ - 1)}};
}

std::vector<GroupId> GroupPlan::groups_of(StageId stage) const {
  std::vector<GroupId> groups{GroupId{stage.value}};
  const GroupId shared{stages_};
  if (has(shared) && contains(shared, stage)) groups.push_back(shared);
  return groups;
}

bool GroupPlan::contains(GroupId group, StageId stage) const {
  return std::ranges::count(stages_of(group), stage) > 0;
}

GroupPlan::Region GroupPlan::region_in(const ParameterLayout& layout, bool shared) {
  if (shared) return {layout.tied_offset, layout.elements - layout.tied_offset};
  return {0, layout.tied_offset};
}

}  // namespace swarmline
