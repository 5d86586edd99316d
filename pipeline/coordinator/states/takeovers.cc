#include "pipeline/coordinator/states/takeovers.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/marks.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

bool Takeovers::await_candidate(const SeatLoss& last) {
  const StageId stage = last.seat.stage;
  const auto known = emptied_.find(stage);
  if (known != emptied_.end() && known->second.seat != last.seat) return true;  // a joiner there
  if (known != emptied_.end()) give_up_candidate(known->second);
  in_.standbys.confirm_alone(stage);
  if (!candidate_for(stage)) {
    emptied_.erase(stage);
    return false;
  }
  if (known == emptied_.end()) emptied_[stage].last = last;
  emptied_.at(stage).deadline = in_.alarms.now() + knobs().catch_up_time;
  dirty_ = true;
  return true;
}

std::optional<Seat> Takeovers::candidate_for(StageId stage) const {
  const std::uint64_t committed = in_.sequence.committed();
  return in_.shadows.heir(stage, committed, [this, committed](StageId served) {
    return in_.members.count_ready(served) + (in_.members.has_copy(served, committed) ? 1 : 0);
  });
}

void Takeovers::give_up_candidate(Emptied& emptied) {
  if (emptied.sent) {
    SWARMLINE_MARK("takeovers.candidate_given_up");
    in_.standbys.keep_no_more(*emptied.sent);
  }
  emptied.sent.reset();
  emptied.seat.reset();
  emptied.is_last = false;
  dirty_ = true;
}

bool Takeovers::was_sent(const Member& before) const {
  if (!before.moves_to) return false;
  const auto emptied = emptied_.find(*before.moves_to);
  return emptied != emptied_.end() &&
         emptied->second.sent == Seat{before.seat.peer, *before.moves_to, before.seat.incarnation};
}

bool Takeovers::awaits(const Seat& seat) const {
  const auto emptied = emptied_.find(seat.stage);
  return emptied != emptied_.end() && emptied->second.sent &&
         emptied->second.sent->peer == seat.peer;
}

void Takeovers::seated(const Seat& seat) {
  if (!awaits(seat)) return;
  Emptied& emptied = emptied_.at(seat.stage);
  emptied.seat = seat;
  emptied.deadline = in_.alarms.now() + knobs().build_time;
}

// The stage has nobody who could say whether it is right: its digest was heard while it followed.
Takeovers::Arrival Takeovers::on_ready(const Seat& seat, std::uint64_t version,
                                       std::uint64_t digest) {
  const auto found = emptied_.find(seat.stage);
  if (found == emptied_.end() || found->second.seat != seat) return Arrival::kNone;
  if (version != in_.sequence.committed() || digest != found->second.digest) {
    in_.rulings.lose(seat, "the state it followed is not the committed one");
    return Arrival::kWrongState;
  }
  SWARMLINE_MARK("takeovers.taken_over");
  const Emptied emptied = std::move(found->second);
  emptied_.erase(found);
  in_.standbys.took_over(*emptied.sent);
  in_.round.seat_keeper(*emptied.sent, seat);
  in_.events.of_peer(seat, "taken_over",
                     fmt::format(" serves stage {} with version {}", seat.stage.value, version));
  return Arrival::kTakenOver;
}

// ---- Moves --------------------------------------------------------------------------------------

bool Takeovers::takes_followed(const Member& member) const {
  if (!member.moves_to) return false;
  const Seat shadow{member.seat.peer, *member.moves_to, member.seat.incarnation};
  return in_.shadows.has(shadow) && in_.shadows.all().at(shadow).ready &&
         in_.shadows.all().at(shadow).version == in_.sequence.committed();
}

bool Takeovers::catches_up(const Member& member) const {
  if (!member.moves_to || takes_followed(member)) return false;
  const Seat shadow{member.seat.peer, *member.moves_to, member.seat.incarnation};
  return in_.shadows.has(shadow) && in_.shadows.all().at(shadow).ready;
}

// ---- Settling -----------------------------------------------------------------------------------

void Takeovers::send_candidates() {
  dirty_ = false;
  std::vector<StageId> stages;
  for (const auto& [stage, emptied] : emptied_)
    if (!emptied.sent) stages.push_back(stage);
  for (const StageId stage : stages)
    if (!send_candidate(stage)) return;
}

// Its host leaves its own stage, and counts as lost there. False: the stage is gone.
bool Takeovers::send_candidate(StageId stage) {
  Emptied& emptied = emptied_.at(stage);
  const std::optional<Seat> candidate = candidate_for(stage);
  if (!candidate) {
    const SeatLoss last = emptied.last;
    emptied_.erase(stage);
    in_.rulings.stage_is_gone(last);
    return false;
  }
  const ShadowDesk::Shadow& shadow = in_.shadows.all().at(*candidate);
  if (shadow.version < in_.sequence.committed()) return true;  // it says so when it does
  SWARMLINE_MARK("takeovers.candidate_sent");
  emptied.sent = candidate;
  emptied.digest = shadow.digest;
  emptied.sent_at = in_.alarms.now();
  emptied.deadline = emptied.sent_at + knobs().return_time;
  in_.standbys.keep_for(*candidate);
  Member& host = in_.members.at(candidate->peer);
  host.moves_to = stage;
  host.moves_since = in_.alarms.now();
  in_.events.of_peer(host.seat, "take_over",
                     fmt::format(" leaves for stage {}, which it follows", stage.value));
  in_.rulings.lose(host.seat, fmt::format("it takes over stage {}", stage.value),
                   Departure::kMoves);
  return true;
}

void Takeovers::check_deadlines() {
  for (auto& [stage, emptied] : emptied_) {
    if (in_.alarms.now() <= emptied.deadline) continue;
    SWARMLINE_MARK("takeovers.deadline");
    dirty_ = true;
    if (emptied.seat && in_.members.is_current(*emptied.seat)) {
      in_.rulings.lose(*emptied.seat, "it did not take its stage over in time");
    } else if (emptied.sent) {
      if (!goes_on_waiting(stage, emptied)) give_up_candidate(emptied);
    } else {
      for (const Seat& seat : in_.shadows.ready_of(stage))
        in_.standbys.drop(seat, "shadow_demoted", "it does not catch up with the last commit");
    }
  }
}

// Nobody else holds the stage's state. Nothing that this coordinator says may have arrived.
bool Takeovers::goes_on_waiting(StageId stage, Emptied& emptied) {
  if (candidate_for(stage)) return false;
  const Instant until = emptied.sent_at + patience_();
  if (std::exchange(emptied.is_last, true) || until <= in_.alarms.now()) {
    SWARMLINE_MARK("takeovers.given_up");
    ++given_up_;
    return false;
  }
  SWARMLINE_MARK("takeovers.waits");
  const Member& host = in_.members.at(emptied.sent->peer);
  in_.events.event(
      "waiting",
      fmt::format("peer {} was sent to stage {} and does not come; the run waits for "
                  "it {:.3g} s at most, then it goes back without it",
                  host.seat.peer.value, stage.value, to_seconds(until - emptied.sent_at)),
      LogLevel::kWarn);
  emptied.deadline = until;
  in_.probe.ask(host, [this, stage, sent = *emptied.sent](const std::string&) {
    const auto now = emptied_.find(stage);
    if (now == emptied_.end() || now->second.sent != sent || now->second.seat) return;
    SWARMLINE_MARK("takeovers.gone");
    give_up_candidate(now->second);
  });
  return true;
}

void Takeovers::restart_deadlines() {
  const Instant now = in_.alarms.now();
  for (auto& [stage, emptied] : emptied_) {
    emptied.sent_at = now;
    emptied.deadline = now + (emptied.seat      ? Duration(knobs().build_time)
                              : emptied.is_last ? patience_()
                              : emptied.sent    ? Duration(knobs().return_time)
                                                : Duration(knobs().catch_up_time));
  }
}

void Takeovers::check_invariants() const {
  for (const auto& [stage, emptied] : emptied_) {
    SWARMLINE_CHECK(!emptied.seat || emptied.sent);
    SWARMLINE_CHECK(!emptied.sent || emptied.sent->stage == stage);
  }
}

}  // namespace swarmline
