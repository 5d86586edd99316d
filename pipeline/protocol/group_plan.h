// Who averages what: each stage is a group over its own elements, and an embedding that the first
// and the last stage share is one over both stages' peers, reduced once.
//   What:    the only place that knows how groups are numbered: a stage's group has its number, the
//            shared embedding's the number after the last stage.
//   Units:   regions in elements of a stage's arena.
//   Thread:  plain values.
//   Errors:  a group or stage that the plan does not have is the caller's to check, by has().
//   Bounds:  Limits::stages_max + 1 groups.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "engine/model/model_spec.h"

namespace swarmline {

class GroupPlan {
 public:
  struct Region {
    std::uint64_t first = 0;
    std::uint64_t elements = 0;
  };

  // `tied`: the first and the last stage share an embedding, and are not the same stage.
  GroupPlan(std::uint32_t stages, bool tied) : stages_(stages), tied_(tied && stages > 1) {}

  std::vector<GroupId> groups() const;  // in order
  bool has(GroupId group) const { return group.value < stages_ + (tied_ ? 1U : 0U); }
  bool is_shared(GroupId group) const { return group.value == stages_; }
  std::vector<StageId> stages_of(GroupId group) const;  // sorted
  std::vector<GroupId> groups_of(StageId stage) const;  // in order
  bool contains(GroupId group, StageId stage) const;
  // Where it lies in the arena of any of its stages.
  static Region region_in(const ParameterLayout& layout, bool shared);
  Region region_of(GroupId group, const ParameterLayout& layout) const {
    return region_in(layout, is_shared(group));
  }

 private:
  std::uint32_t stages_;
  bool tied_;
};

}  // namespace swarmline
