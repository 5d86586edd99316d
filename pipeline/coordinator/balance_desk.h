// When to plan, and what the planner sees of the members. Pure: instants are passed in.
//   Costs:   of a stage, what its peers measure for one microbatch, in the mean; before that, and
//            for what nobody has measured, by FLOPs.
//   Speeds:  a peer's against its stage mates; who is not measured is as fast as they are. (FLOPs
//            tell stages apart too badly: peers would change places for ever.)
//   Thread:  control thread.
#pragma once

#include <optional>
#include <vector>

#include "balancer/plan.h"
#include "engine/config/run_config.h"
#include "engine/model/model_spec.h"
#include "pipeline/coordinator/membership.h"

namespace swarmline {

class BalanceDesk {
 public:
  // Who is told to move and has not come back by then is not counted on any more.
  static constexpr Duration kMoveTime = std::chrono::seconds(60);

  BalanceDesk(const BalanceSection& config, const ModelSpec& model,
              const std::vector<StageSpec>& stages);

  bool moves() const { return moves_; }
  void seats_changed() { changed_ = true; }
  // It is time: a period has passed, or seats have changed since the last plan.
  bool due(Instant now);
  // Where a newcomer helps most; empty: nobody can say.
  std::optional<StageId> place(const Membership& members, std::uint64_t memory_bytes,
                               Instant now) const;
  SwarmPlan plan(const Membership& members, Instant now) const;

 private:
  PlanSnapshot snapshot(const Membership& members, Instant now) const;

  bool moves_;
  Duration period_;
  std::vector<PlanStage> stages_;  // costs in FLOPs
  bool changed_ = false;
  Instant planned_at_{};
};

}  // namespace swarmline
