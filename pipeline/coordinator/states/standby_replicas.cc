#include "pipeline/coordinator/states/standby_replicas.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/marks.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

// ---- One shadow's life --------------------------------------------------------------------------

void StandbyReplicas::add(const Seat& host, StageId stage, const std::string& why) {
  const Seat shadow{host.peer, stage, host.incarnation};
  if (in_.shadows.has(shadow) || host.stage == stage) return;
  in_.shadows.add(shadow, host.stage, in_.alarms.now());
  in_.events.of_peer(host, "shadow_added", fmt::format(" follows stage {}: {}", stage.value, why));
  wire::Follow follow;
  follow.set_stage(stage.value);
  in_.outbox.send(host, make_frame(MessageKind::kFollow, follow));
}

void StandbyReplicas::drop(const Seat& shadow, const std::string& kind, const std::string& why) {
  in_.events.event(kind, fmt::format("{} follows stage {} no more: {}", in_.events.who(shadow.peer),
                                     shadow.stage.value, why));
  wire::Follow follow;
  follow.set_stage(shadow.stage.value);
  follow.set_drop(true);
  const Seat host{shadow.peer, in_.shadows.all().at(shadow).host_stage, shadow.incarnation};
  in_.outbox.send(host, make_frame(MessageKind::kFollow, follow));
  forget(shadow);
  in_.balancer.seats_changed();
}

void StandbyReplicas::demote(const Seat& shadow, const std::string& why) {
  SWARMLINE_MARK("standby_replicas.demoted");
  in_.shadows.rest(shadow.peer, in_.alarms.now());
  drop(shadow, "shadow_demoted", why);
}

void StandbyReplicas::forget(const Seat& shadow) {
  in_.shadows.remove(shadow);
  in_.states.forget(shadow);
  in_.round.lose_keeper(shadow);
}

// Its host is lost, or moves: of what it follows only the state that it moves to is kept, for as
// long as nobody else has it.
void StandbyReplicas::on_seat_lost(const SeatLoss& lost) {
  for (const Seat& shadow : in_.shadows.hosted_by(lost.seat.peer)) {
    if (kept_.contains(shadow)) {
      in_.shadows.remove(shadow);
    } else {
      forget(shadow);
    }
  }
}

void StandbyReplicas::keep_no_more(const Seat& shadow) {
  kept_.erase(shadow);
  in_.round.lose_keeper(shadow);
}

// ---- What a shadow says -------------------------------------------------------------------------

void StandbyReplicas::on_want_state(const Seat& shadow) {
  in_.round.lose_keeper(shadow);
  in_.shadows.restart(shadow, in_.alarms.now());
  in_.states.want(shadow);
}

void StandbyReplicas::on_ready(const Seat& shadow, std::uint64_t version, std::uint64_t digest) {
  if (version > in_.sequence.committed()) return;
  in_.shadows.said(shadow, version, digest, in_.alarms.now());
  look_at(shadow.stage);
}

// ---- Settling -----------------------------------------------------------------------------------

void StandbyReplicas::check(const std::function<std::size_t(StageId)>& members_of) {
  for (const StageId stage : std::exchange(unchecked_, {}))
    for (const Seat& seat : in_.shadows.of_stage(stage)) {
      const ShadowDesk::Shadow shadow = in_.shadows.all().at(seat);
      if (shadow.version == 0 || !in_.audit.knows(stage, shadow.version)) continue;
      if (!in_.audit.has_said(stage, shadow.version, shadow.digest)) {
        // Whoever spoke first may be the one that is wrong.
        if (in_.audit.said(stage, shadow.version) < members_of(stage)) continue;
        SWARMLINE_MARK("standby_replicas.other_bits");
        drop(seat, "shadow_demoted", "it holds other parameters than the stage");
        continue;
      }
      if (shadow.ready) continue;
      confirm(seat);
    }
}

void StandbyReplicas::confirm(const Seat& shadow) {
  in_.shadows.confirm(shadow, in_.alarms.now());
  in_.states.arrived(shadow);
  in_.round.add_keeper(shadow);
  in_.events.event("shadow_ready",
                   fmt::format("{} holds version {} of stage {}", in_.events.who(shadow.peer),
                               in_.shadows.all().at(shadow).version, shadow.stage.value));
  in_.balancer.seats_changed();
}

// One that holds what is committed is as good as a joiner that does: the pieces it fetched were
// hashed, and so were the sums of commits since.
void StandbyReplicas::confirm_alone(StageId stage) {
  const std::uint64_t committed = in_.sequence.committed();
  for (const Seat& seat : in_.shadows.of_stage(stage)) {
    const ShadowDesk::Shadow shadow = in_.shadows.all().at(seat);
    if (shadow.ready || shadow.version == 0 || shadow.version != committed) continue;
    if (in_.audit.knows(stage, committed) && !in_.audit.has_said(stage, committed, shadow.digest))
      continue;
    SWARMLINE_MARK("standby_replicas.confirmed_alone");
    confirm(seat);
  }
}

void StandbyReplicas::demote_late(const std::function<bool(StageId)>& spared) {
  for (const Seat& seat : in_.shadows.late(in_.alarms.now()))
    if (in_.shadows.has(seat) && !spared(seat.stage)) demote(seat, "it does not keep up");
}

bool StandbyReplicas::settle_tie(StageId stage, std::uint64_t version,
                                 const ReplicaAudit::Votes& votes) {
  bool may_tell = false;
  for (const Seat& seat : in_.shadows.ready_of(stage)) {
    const ShadowDesk::Shadow& shadow = in_.shadows.all().at(seat);
    may_tell = may_tell || shadow.version < version;
    if (shadow.version != version || !votes.contains(shadow.digest)) continue;
    SWARMLINE_MARK("standby_replicas.settled_a_tie");
    for (const auto& [digest, seats] : votes)
      for (const Seat& wrong : seats)
        if (digest != shadow.digest)
          in_.rulings.lose(
              wrong, fmt::format("it holds other parameters after step {} than its stage's shadow",
                                 version));
    return true;
  }
  return may_tell;
}

std::set<StageId> StandbyReplicas::stages_to_keep_for() const {
  std::set<StageId> stages;
  for (const auto& [seat, shadow] : in_.shadows.all())
    if (shadow.follows && !in_.round.has_result(seat)) stages.insert(seat.stage);
  return stages;
}

void StandbyReplicas::tell_commit(const CommitOrder& commit, const std::set<StageId>& keepers) {
  for (const auto& [seat, shadow] : std::map(in_.shadows.all())) {
    if (!shadow.follows) continue;
    in_.outbox.send(seat, make_frame(MessageKind::kCommit,
                                     commit.message_to(seat, keepers.contains(seat.stage))));
    in_.shadows.committed(seat, commit.step + 1, commit.skipped || in_.round.has_result(seat),
                          in_.alarms.now());
  }
}

void StandbyReplicas::tell_views(const std::set<Seat>& changed, Membership& members) {
  for (const auto& [shadow, entry] : in_.shadows.all())
    if (entry.follows &&
        std::ranges::any_of(changed, [&](const Seat& seat) { return seat.stage == shadow.stage; }))
      in_.outbox.send(shadow, make_frame(MessageKind::kMembership, members.news_for(shadow)));
}

void StandbyReplicas::on_rollback() {
  in_.shadows = ShadowDesk();
  unchecked_.clear();
  kept_.clear();
}

}  // namespace swarmline
