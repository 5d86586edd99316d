// Moves and shadows. Whoever the planner sends to another stage drains, and comes back as a joiner
// there.
#include "base/log.h"
#include "pipeline/coordinator/coordinator_impl.h"

namespace swarmline {

// At the start the config's numbers of peers decide.
std::optional<StageId> Coordinator::Impl::place(const wire::Hello& hello) const {
  if (state_ == State::kWaiting) return std::nullopt;
  const Member* before = membership_.former(hello);
  if (before != nullptr && before->moves_to) return before->moves_to;
  const std::optional<StageId> kept = kept_stage(hello);
  if (balancer_.moves())
    return balancer_.place(membership_, shadows_, hello.memory_bytes(), kept, runtime_.now());
  if (kept && membership_.live_of(*kept) < membership_.target_of(*kept)) return kept;
  return std::nullopt;
}

// Whose state it has from its last seat, as it is committed.
std::optional<StageId> Coordinator::Impl::kept_stage(const wire::Hello& hello) const {
  if (!hello.has_kept() || hello.kept().stage() >= shape_.stages.size() ||
      hello.kept().version() != sequence_.committed())
    return std::nullopt;
  return StageId{static_cast<std::uint16_t>(hello.kept().stage())};
}

void Coordinator::Impl::balance() {
  if (state_ != State::kTraining || sequence_.finished()) return;
  const Instant now = runtime_.now();
  // Its stage has nobody else any more: it stays.
  for (const auto& [peer, known] : membership_.members()) {
    Member& member = membership_.at(peer);
    if (!serves(member.seat) || (!member.moves_to && member.let_go.empty()) ||
        !membership_.staying_of(member.seat.stage).empty())
      continue;
    member.draining = false;
    member.moves_to.reset();
    member.let_go.clear();
    event("move_called_off", to_string(member.seat) + ": its stage has nobody else");
    send_membership();
  }
  balancer_.watch_speeds(membership_, now);
  if (!balancer_.due(now)) return;
  const SwarmPlan plan = balancer_.plan(membership_, shadows_, now);
  for (const PlanMove& move : plan.moves) {
    Member& member = membership_.at(move.peer);
    if (!move.from || !serves(member.seat) || member.draining) continue;
    member.draining = true;
    member.in_flight = 1;  // its next heartbeat says what it holds
    if (move.kind == MoveKind::kRetire) {
      member.let_go = move.reason;
      event("fail_slow", fmt::format("{} is let go: {}", to_string(member.seat), move.reason));
      send_membership();
      continue;
    }
    member.moves_to = move.to;
    member.moves_since = now;
    event("move", fmt::format("{} to stage {}: {}; {:.3g} microbatches/s become {:.3g}",
                              to_string(member.seat), move.to.value, move.reason,
                              plan.throughput_before, plan.throughput_after));
    send_membership();
  }
  for (const ShadowChange& change : plan.shadows) {
    const Member& host = membership_.at(change.peer);
    const Seat shadow{host.seat.peer, change.stage, host.seat.incarnation};
    if (change.add && serves(host.seat) && !host.draining)
      add_shadow(host.seat, change.stage, change.reason);
    if (!change.add && shadows_.has(shadow)) drop_shadow(shadow, "shadow_dropped", change.reason);
  }
}

}  // namespace swarmline
