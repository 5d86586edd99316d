#include "pipeline/coordinator/members/relocation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "balancer/hand_over_worth.h"
#include "base/marks.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

// ---- Newcomers ----------------------------------------------------------------------------------

std::optional<StageId> Relocation::place(const wire::Hello& hello, std::uint64_t committed) const {
  const Member* before = in_.members.former(hello);
  const bool was_sent = before != nullptr && in_.takeovers.was_sent(*before);
  const std::optional<StageId> kept = kept_stage(hello, committed);
  if (kept && !was_sent && in_.kept_heirs.wants_back(*kept)) return kept;
  if (before != nullptr && before->moves_to) return before->moves_to;
  if (in_.balancer.moves())
    return in_.balancer.place(in_.members, in_.shadows, hello, kept, in_.alarms.now());
  if (kept && in_.members.live_of(*kept) < in_.members.target_of(*kept)) return kept;
  return std::nullopt;
}

// Whose state it has from its last seat, as it is committed.
std::optional<StageId> Relocation::kept_stage(const wire::Hello& hello,
                                              std::uint64_t committed) const {
  if (!hello.has_kept() || hello.kept().stage() >= in_.shape.stages.size() ||
      hello.kept().version() != committed)
    return std::nullopt;
  return StageId{static_cast<std::uint16_t>(hello.kept().stage())};
}

// ---- Going --------------------------------------------------------------------------------------

void Relocation::drain(Member& member) {
  in_.members.set_draining(member.seat.peer, true);
  member.in_flight = 1;  // what it said before may be over; its next heartbeat says what it holds
  views_changed_ = true;
}

void Relocation::on_leave(const Seat& seat, std::optional<Duration> in) {
  Member& member = in_.members.at(seat.peer);
  if (in || member.moves_to) member.goes_at.reset();
  if (in) member.goes_at = in_.alarms.now() + *in;
  if (member.draining && !member.moves_to) return;
  member.moves_to.reset();
  if (!in_.members.serves(seat)) return in_.rulings.lose(seat, "it left", Departure::kLeft);
  drain(member);
  in_.events.of_peer(seat, "peer_draining", "");
  dirty_ = true;
}

void Relocation::on_risk(const Seat& seat) {
  Member& member = in_.members.at(seat.peer);
  if (std::exchange(member.at_risk, true)) return;
  SWARMLINE_MARK("relocation.at_risk");
  in_.balancer.risk_came();
  in_.events.event("peer_at_risk", to_string(seat));
}

bool Relocation::is_needed(const Member& member) const {
  const Seat& seat = member.seat;
  // The last one of its stage stays until another holds the stage's state.
  if (in_.members.staying_of(seat.stage).empty() || in_.takeovers.catches_up(member)) return true;
  for (const Phase& phase : in_.ledger.open_phases())
    if (phase.kind == PhaseKind::kTrain &&
        std::ranges::binary_search(in_.ledger.owners(phase, seat.stage), seat))
      return true;
  if (in_.round.is_active() &&
      in_.round.board().is_member(in_.shape.groups.groups_of(seat.stage).front(), seat))
    return true;
  return in_.checkpointer.is_saving(seat);
}

void Relocation::release_drained() {
  dirty_ = false;
  for (const auto& [peer, member] : in_.members.members()) {
    if (!member.draining || !in_.members.serves(member.seat) || member.in_flight > 0 ||
        is_needed(member))
      continue;
    if (member.moves_to) {
      SWARMLINE_MARK("relocation.moved");
      in_.rulings.lose(member.seat, fmt::format("to stage {}", member.moves_to->value),
                       Departure::kMoves);
    } else {
      SWARMLINE_MARK("relocation.drained");
      in_.rulings.lose(member.seat, member.let_go.empty() ? "drained" : member.let_go,
                       Departure::kLeft);
    }
  }
}

// ---- Moves --------------------------------------------------------------------------------------

void Relocation::plan() {
  call_off_moves();
  const Instant now = in_.alarms.now();
  in_.balancer.watch_speeds(in_.members, now);
  if (in_.members.shares_are_stale()) views_changed_ = true;
  if (in_.balancer.due(now)) carry_out(in_.balancer.plan(in_.members, in_.shadows, now));
}

// As long as it usually takes: who was lost makes it longer.
bool Relocation::is_long(const Phase& phase) const {
  const Duration round = in_.round.took();
  if (phase.kind != PhaseKind::kTrain || round == Duration{}) return false;
  const std::uint32_t indices = in_.ledger.indices(phase);
  std::uint32_t owned = indices;
  for (const StageSpec& stage : in_.shape.stages)
    owned = std::min(owned, in_.ledger.owned(phase, stage.stage));
  const double left = in_.stats.seconds_per_step() * (indices - owned) / indices;
  return is_worth_a_hand_over(left, to_seconds(round), to_seconds(knobs().hand_over_margin));
}

bool Relocation::plans_inside_step() const {
  if (!in_.balancer.has_changed() || in_.round.is_active() ||
      in_.alarms.now() - planned_inside_ < knobs().hand_over_look)
    return false;
  const std::vector<Phase> open = in_.ledger.open_phases();
  return !open.empty() && is_long(open.front());
}

void Relocation::plan_inside_step() {
  SWARMLINE_MARK("relocation.inside_step");
  planned_inside_ = in_.alarms.now();
  call_off_moves();
  carry_out(in_.balancer.plan_inside_step(in_.members, in_.shadows, planned_inside_));
}

void Relocation::carry_out(const SwarmPlan& plan) {
  for (const PlanMove& move : plan.moves) begin_move(move, plan);
  for (const ShadowChange& change : plan.shadows) {
    const Member& host = in_.members.at(change.peer);
    const Seat shadow{host.seat.peer, change.stage, host.seat.incarnation};
    if (change.add && in_.members.serves(host.seat) && !host.draining)
      in_.standbys.add(host.seat, change.stage, change.reason);
    if (!change.add && in_.shadows.has(shadow))
      in_.standbys.drop(shadow, "shadow_dropped", change.reason);
  }
}

// Its stage has nobody else any more: it stays.
void Relocation::call_off_moves() {
  for (const auto& [peer, known] : in_.members.members()) {
    Member& member = in_.members.at(peer);
    if (!in_.members.serves(member.seat) || (!member.moves_to && member.let_go.empty()) ||
        !in_.members.staying_of(member.seat.stage).empty())
      continue;
    SWARMLINE_MARK("relocation.called_off");
    in_.members.set_draining(peer, false);
    member.goes_at.reset();
    member.moves_to.reset();
    member.let_go.clear();
    in_.events.of_peer(member.seat, "move_called_off", ": its stage has nobody else");
    views_changed_ = true;
  }
}

void Relocation::begin_move(const PlanMove& move, const SwarmPlan& plan) {
  Member& member = in_.members.at(move.peer);
  if (!move.from || !in_.members.serves(member.seat) || member.draining) return;
  drain(member);
  if (move.kind == MoveKind::kRetire) {
    SWARMLINE_MARK("relocation.fail_slow");
    member.let_go = move.reason;
    in_.events.of_peer(member.seat, "fail_slow", " is let go: " + move.reason, LogLevel::kWarn);
    return;
  }
  member.moves_to = move.to;
  member.moves_since = in_.alarms.now();
  const std::vector<Phase> open = in_.ledger.open_phases();
  if (!open.empty() && is_long(open.front())) member.goes_at = member.moves_since;
  in_.events.of_peer(
      member.seat, "move",
      fmt::format(" to stage {}: {}; {:.3g} microbatches/s become {:.3g}", move.to.value,
                  move.reason, plan.throughput_before, plan.throughput_after));
}

}  // namespace swarmline
