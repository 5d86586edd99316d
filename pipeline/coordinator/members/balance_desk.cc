#include "pipeline/coordinator/members/balance_desk.h"

#include <algorithm>
#include <map>
#include <vector>

#include "balancer/cut.h"
#include "base/order_statistics.h"
#include "pipeline/coordinator/members/data_desk.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

namespace {
constexpr PeerId kNewcomer{0};                 // nobody's
constexpr std::uint64_t kStateCopies = 3;      // parameters and two moments
constexpr std::uint64_t kMoreHeld = 1;         // by a shadow: a step's gradient
constexpr std::uint64_t kMoreHeldDelayed = 3;  // and the versions in use
constexpr std::uint64_t kNoMemory = 1;
constexpr double kAtRiskShare = 0.5;  // of its speed that a peer at risk counts for

PlanOptions options_of(const BalanceSection& config) {
  return run_plan_options(
      config.moves, config.shadows.automatic ? std::nullopt : std::optional(config.shadows.count));
}

bool is_measured(const Member& member) {
  return member.state == MemberState::kReady && member.seconds_per_microbatch > 0;
}

// How long those who are ready and measured take, of each stage; in order.
std::map<StageId, std::vector<double>> times_of_stages(const Membership& members) {
  std::map<StageId, std::vector<double>> times;
  for (const auto& [peer, member] : members.members())
    if (is_measured(member)) times[member.seat.stage].push_back(member.seconds_per_microbatch);
  for (auto& [stage, seconds] : times) std::ranges::sort(seconds);
  return times;
}

// One's speed over the median of its mates'. `times`: of its stage, its own among them.
std::optional<double> share_of_mates(const std::vector<double>& times, double own) {
  const std::size_t mates = times.size() - 1;
  if (mates == 0) return std::nullopt;
  const auto self = static_cast<std::size_t>(std::ranges::lower_bound(times, own) - times.begin());
  const std::size_t middle = mates / 2;
  return times[middle < self ? middle : middle + 1] / own;
}

// Who fetches leaves the stage that reads the data to those who need not, unless it is there.
std::optional<StageId> barred(bool lacks_data, bool fetches_data, bool has_data_elsewhere,
                              std::optional<StageId> place) {
  const bool leaves_it = fetches_data && has_data_elsewhere && place != kReadingStage;
  return lacks_data || leaves_it ? std::optional(kReadingStage) : std::nullopt;
}

// Where it serves, or will.
std::optional<StageId> place_of(const Member& member, Instant now) {
  const bool on_its_way = member.moves_to && now - member.moves_since < knobs().move_time;
  if (on_its_way) return member.moves_to;
  if (member.state == MemberState::kLost || member.draining) return std::nullopt;
  return member.seat.stage;
}

}  // namespace

BalanceDesk::BalanceDesk(const RunConfig& config, const ModelSpec& model,
                         const std::vector<StageSpec>& stages,
                         const std::vector<std::uint64_t>& memory)
    : moves_(config.balance.moves),
      options_(options_of(config.balance)),
      copies_held_(kStateCopies + (config.pipeline.delay > 0 ? kMoreHeldDelayed : kMoreHeld)),
      period_(from_seconds(config.balance.period_seconds)) {
  const ModelCosts costs = model_costs(model);
  for (const StageSpec& stage : stages)
    stages_.push_back({.cost = stage_flops(costs, stage),
                       .state_bytes = kStateCopies * make_layout(model, stage).bytes(),
                       .memory_bytes = memory.empty() ? 0 : memory.at(stage.stage.value)});
}

void BalanceDesk::watch_speeds(const Membership& members, Instant now) {
  const std::map<StageId, std::vector<double>> times = times_of_stages(members);
  for (const auto& [peer, member] : members.members()) {
    const std::optional<double> share =
        is_measured(member)
            ? share_of_mates(times.at(member.seat.stage), member.seconds_per_microbatch)
            : std::nullopt;
    if (share && *share >= options_.fail_slow_share) sound_.insert(peer);
    if (share && *share < options_.fail_slow_share && sound_.contains(peer))
      slow_since_.try_emplace(peer, now);
    else
      slow_since_.erase(peer);
  }
  std::erase_if(sound_, [&](PeerId peer) { return !members.members().contains(peer); });
  std::erase_if(slow_since_,
                [&](const auto& entry) { return !members.members().contains(entry.first); });
}

bool BalanceDesk::due(Instant now) {
  const bool shadows = options_.shadows_per_stage != 0U || at_risk_;
  const bool shadows_wait = shadows && planned_at_ == Instant{};
  if ((!moves_ && !shadows) || (!changed_ && !shadows_wait && now - planned_at_ < period_))
    return false;
  first_ = planned_at_ == Instant{} && !changed_;
  changed_ = changed_inside_ = false;
  planned_at_ = now;
  return !first_ || shadows;  // the first seating is as good as what is known then
}

double BalanceDesk::slow_seconds(PeerId peer, Instant now) const {
  const auto since = slow_since_.find(peer);
  return since == slow_since_.end() ? 0 : to_seconds(now - since->second);
}

bool BalanceDesk::is_on_trial(PeerId peer, Instant now) const {
  return slow_since_.contains(peer) && slow_seconds(peer, now) < options_.fail_slow_seconds;
}

// The planner counts what is downloaded.
std::uint64_t BalanceDesk::shadow_memory(const Member& member, const ShadowDesk& shadows,
                                         Instant now) const {
  if (shadows.rests(member.seat.peer, now)) return kNoMemory;
  if (member.shadow_memory_bytes == 0) return 0;
  return std::max(kNoMemory, member.shadow_memory_bytes / copies_held_ * kStateCopies);
}

PlanSnapshot BalanceDesk::snapshot(const Membership& members, const ShadowDesk& shadows,
                                   Instant now) const {
  std::vector<std::vector<double>> measured(stages_.size());  // seconds a microbatch
  for (const auto& [peer, member] : members.members()) {
    if (member.seconds_per_microbatch == 0 || member.state != MemberState::kReady) continue;
    measured[member.seat.stage.value].push_back(member.seconds_per_microbatch);
  }
  PlanSnapshot snapshot{.stages = stages_, .peers = {}};
  double seconds_of_measured = 0, flops_of_measured = 0;
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    if (measured[s].empty()) continue;
    // The usual peer's: one small machine does not make fast ones of its mates.
    snapshot.stages[s].cost = nth_smallest(measured[s], (measured[s].size() - 1) / 2);
    seconds_of_measured += snapshot.stages[s].cost;
    flops_of_measured += stages_[s].cost;
  }
  for (std::size_t s = 0; s < stages_.size() && flops_of_measured > 0; ++s)
    if (measured[s].empty())
      snapshot.stages[s].cost = stages_[s].cost * seconds_of_measured / flops_of_measured;
  const bool elsewhere = members.has_data_elsewhere();
  for (const auto& [peer, member] : members.members()) {
    const auto place = place_of(member, now);
    if (!place) continue;
    const double seconds = member.seconds_per_microbatch;
    const bool known = seconds > 0 && !measured[member.seat.stage.value].empty();
    snapshot.peers.push_back(
        {.peer = peer,
         .stage = place,
         .arriving =
             member.state != MemberState::kReady || member.draining || is_on_trial(peer, now),
         .speed = (known ? snapshot.stages[member.seat.stage.value].cost / seconds : 1) *
                  (member.at_risk ? kAtRiskShare : 1),
         .memory_bytes = member.memory_bytes,
         .shadow_memory_bytes = shadow_memory(member, shadows, now),
         .shadows = {},
         .barred = barred(member.lacks_data, member.fetches_data, elsewhere, place),
         .slow_seconds = slow_seconds(peer, now),
         .at_risk = member.at_risk,
         .at = member.at});
    for (const Seat& shadow : shadows.hosted_by(peer))
      snapshot.peers.back().shadows.push_back(
          {.stage = shadow.stage, .ready = shadows.all().at(shadow).ready});
  }
  return snapshot;
}

SwarmPlan BalanceDesk::plan(const Membership& members, const ShadowDesk& shadows,
                            Instant now) const {
  SwarmPlan plan = plan_swarm(snapshot(members, shadows, now), options_);
  if (first_ || !moves_) plan.moves.clear();
  return plan;
}

SwarmPlan BalanceDesk::plan_inside_step(const Membership& members, const ShadowDesk& shadows,
                                        Instant now) {
  changed_inside_ = false;
  const PlanSnapshot seen = snapshot(members, shadows, now);
  SwarmPlan plan = plan_swarm(seen, options_);
  plan.shadows.clear();
  PlanOptions staying = options_;
  staying.moves_max = 0;
  const double without = plan_swarm(seen, staying).throughput_after;
  if (plan.throughput_after <= without * (1 + options_.hysteresis)) plan.moves.clear();
  return plan;
}

std::optional<StageId> BalanceDesk::place(const Membership& members, const ShadowDesk& shadows,
                                          const wire::Hello& hello, std::optional<StageId> kept,
                                          Instant now) const {
  PlanSnapshot with = snapshot(members, shadows, now);
  with.peers.push_back({.peer = kNewcomer,
                        .stage = std::nullopt,
                        .speed = 1,
                        .memory_bytes = hello.memory_bytes(),
                        .shadows = {},
                        .barred = barred(lacks_data(hello), fetches_data(hello),
                                         members.has_data_elsewhere(), std::nullopt),
                        .at = location_of(hello)});
  if (kept) with.peers.back().shadows.push_back({.stage = *kept, .ready = true});
  const SwarmPlan plan = plan_swarm(with, options_);
  const auto found = std::find_if(plan.moves.begin(), plan.moves.end(),
                                  [](const PlanMove& move) { return move.peer == kNewcomer; });
  if (found == plan.moves.end()) return std::nullopt;
  return found->to;
}

}  // namespace swarmline
