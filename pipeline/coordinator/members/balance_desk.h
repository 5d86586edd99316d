// When to plan, and what the planner sees of the members. Pure: instants are passed in.
//   Costs:   of a stage, what its peers measure for one microbatch, in the mean; before that, and
//            for what nobody has measured, by FLOPs.
//   Speeds:  a peer's against its stage mates; who is not measured is as fast as they are. (FLOPs
//            tell stages apart too badly: peers would change places for ever.)
//   Shadows: by the config's number, or as many as cost next to nothing. A host's memory for them
//            holds more than the state that the planner counts: gradients, and versions in use.
//   Slow:    whose speed falls under PlanOptions::fail_slow_share of the median of its stage mates'
//            and stays there. One that was never faster is a small machine, not a failing one.
//   Thread:  control thread.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "balancer/plan.h"
#include "engine/config/run_config.h"
#include "engine/model/model_spec.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/states/shadow_desk.h"

namespace swarmline {

class BalanceDesk {
 public:
  // `memory`: bytes that a peer of each stage needs; empty: unknown.
  BalanceDesk(const RunConfig& config, const ModelSpec& model, const std::vector<StageSpec>& stages,
              const std::vector<std::uint64_t>& memory = {});

  bool moves() const { return moves_; }
  void seats_changed() { changed_ = changed_inside_ = true; }
  // Somebody's machine may be taken soon: shadows are planned from now on, wanted or not.
  void risk_came() { changed_ = changed_inside_ = at_risk_ = true; }
  // At each commit, so that the plan knows for how long who has been slow.
  void watch_speeds(const Membership& members, Instant now);
  // It is time: a period has passed, or seats or shadows have changed since the last plan.
  bool due(Instant now);
  // Seats have changed since the last plan, inside a step or not.
  bool has_changed() const { return moves_ && changed_inside_; }
  // Of so many it remembers how fast they were.
  std::size_t remembered() const { return sound_.size() + slow_since_.size(); }
  // Where a newcomer helps most; among equals, where it kept the state. Empty: nobody can say.
  std::optional<StageId> place(const Membership& members, const ShadowDesk& shadows,
                               const wire::Hello& hello, std::optional<StageId> kept,
                               Instant now) const;
  SwarmPlan plan(const Membership& members, const ShadowDesk& shadows, Instant now) const;
  // Inside a step, where moves are dearer: none but those that raise the slowest stage, by what a
  // plan must gain. No shadows: what is added and dropped at each change of seats is never there.
  SwarmPlan plan_inside_step(const Membership& members, const ShadowDesk& shadows, Instant now);
  // What that plan is made of, and what the status shows of it.
  PlanSnapshot snapshot(const Membership& members, const ShadowDesk& shadows, Instant now) const;

 private:
  double slow_seconds(PeerId peer, Instant now) const;
  // It has become slow, and not for long enough to be let go: nobody moves it meanwhile.
  bool is_on_trial(PeerId peer, Instant now) const;
  std::uint64_t shadow_memory(const Member& member, const ShadowDesk& shadows, Instant now) const;

  bool moves_;
  PlanOptions options_;
  std::uint64_t copies_held_;  // of a stage's parameters, by a shadow
  Duration period_;
  std::vector<PlanStage> stages_;  // costs in FLOPs
  bool changed_ = false;
  bool changed_inside_ = false;
  bool at_risk_ = false;
  bool first_ = false;  // the plan that is due: nobody moves
  Instant planned_at_{};
  std::set<PeerId> sound_;  // has been as fast as its mates want it
  std::map<PeerId, Instant> slow_since_;
};

}  // namespace swarmline
