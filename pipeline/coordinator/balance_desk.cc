#include "pipeline/coordinator/balance_desk.h"

#include <algorithm>

#include "balancer/cut.h"

namespace swarmline {

namespace {
constexpr PeerId kNewcomer{0};  // nobody's
// Measured speeds are off by some percents from step to step: nobody moves for less.
constexpr PlanOptions kOptions{.hysteresis = 0.1, .shadows_per_stage = 0};
constexpr std::uint64_t kStateCopies = 3;  // parameters and two moments

// Where it serves, or will.
std::optional<StageId> place_of(const Member& member, Instant now) {
  const bool on_its_way = member.moves_to && now - member.moves_since < BalanceDesk::kMoveTime;
  if (on_its_way) return member.moves_to;
  if (member.state == MemberState::kLost || member.draining) return std::nullopt;
  return member.seat.stage;
}

}  // namespace

BalanceDesk::BalanceDesk(const BalanceSection& config, const ModelSpec& model,
                         const std::vector<StageSpec>& stages)
    : moves_(config.moves), period_(from_seconds(config.period_seconds)) {
  const ModelCosts costs = model_costs(model);
  for (const StageSpec& stage : stages)
    stages_.push_back({.cost = stage_flops(costs, stage),
                       .state_bytes = kStateCopies * make_layout(model, stage).bytes(),
                       .memory_bytes = 0});
}

bool BalanceDesk::due(Instant now) {
  if (!moves_ || (!changed_ && now - planned_at_ < period_)) return false;
  const bool first = planned_at_ == Instant{} && !changed_;
  changed_ = false;
  planned_at_ = now;
  return !first;  // the first seating is as good as what is known then
}

PlanSnapshot BalanceDesk::snapshot(const Membership& members, Instant now) const {
  struct Measured {
    double seconds = 0;
    std::uint32_t peers = 0;
  };
  std::vector<Measured> measured(stages_.size());
  for (const auto& [peer, member] : members.members()) {
    if (member.seconds_per_microbatch == 0 || member.state != MemberState::kReady) continue;
    Measured& stage = measured[member.seat.stage.value];
    stage.seconds += member.seconds_per_microbatch;
    ++stage.peers;
  }
  PlanSnapshot snapshot{.stages = stages_, .peers = {}};
  double seconds_of_measured = 0, flops_of_measured = 0;
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    if (measured[s].peers == 0) continue;
    snapshot.stages[s].cost = measured[s].seconds / measured[s].peers;
    seconds_of_measured += snapshot.stages[s].cost;
    flops_of_measured += stages_[s].cost;
  }
  for (std::size_t s = 0; s < stages_.size() && flops_of_measured > 0; ++s)
    if (measured[s].peers == 0)
      snapshot.stages[s].cost = stages_[s].cost * seconds_of_measured / flops_of_measured;
  for (const auto& [peer, member] : members.members()) {
    const auto place = place_of(member, now);
    if (!place) continue;
    const double seconds = member.seconds_per_microbatch;
    const bool known = seconds > 0 && measured[member.seat.stage.value].peers > 0;
    snapshot.peers.push_back(
        {.peer = peer,
         .stage = place,
         .arriving = member.state != MemberState::kReady || member.draining,
         .speed = known ? snapshot.stages[member.seat.stage.value].cost / seconds : 1,
         .memory_bytes = member.memory_bytes,
         .shadows = {}});
  }
  return snapshot;
}

SwarmPlan BalanceDesk::plan(const Membership& members, Instant now) const {
  return plan_swarm(snapshot(members, now), kOptions);
}

std::optional<StageId> BalanceDesk::place(const Membership& members, std::uint64_t memory_bytes,
                                          Instant now) const {
  PlanSnapshot with = snapshot(members, now);
  with.peers.push_back({.peer = kNewcomer,
                        .stage = std::nullopt,
                        .speed = 1,
                        .memory_bytes = memory_bytes,
                        .shadows = {}});
  const SwarmPlan plan = plan_swarm(with, kOptions);
  const auto found = std::find_if(plan.moves.begin(), plan.moves.end(),
                                  [](const PlanMove& move) { return move.peer == kNewcomer; });
  if (found == plan.moves.end()) return std::nullopt;
  return found->to;
}

}  // namespace swarmline
