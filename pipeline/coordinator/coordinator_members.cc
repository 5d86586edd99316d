// Who is lost, how that is found out, and what follows from it.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "pipeline/coordinator/coordinator_impl.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

void Coordinator::Impl::watch() {
  const Instant now = runtime_.now();
  if (detector_.was_stopped(now)) {
    log(LogLevel::kWarn, "the coordinator was stopped for {:.1f} s; all deadlines start over",
        to_seconds(detector_.lateness(now)));
    detector_.restart_deadlines(now);
    shadows_.restart_deadlines(now);
  }
  const std::vector<Seat> silent = detector_.silent(now);
  if (may_begin_again() && detector_.hears_nobody(silent, now))
    return begin_again({.heard_nobody = true,
                        .why = fmt::format("nothing was heard from anybody for {:.3g} s",
                                           to_seconds(detector_.silence(silent.front(), now)))});
  std::vector<std::pair<Seat, std::string>> lost;
  for (const Seat& seat : silent)
    lost.emplace_back(seat, fmt::format("nothing was heard from it for {:.3g} s",
                                        to_seconds(detector_.silence(seat, now))));
  for (const auto& [seat, why] : lost)
    if (!ended_) fence(seat, why);
  for (const Seat& seat : detector_.stuck())
    if (!ended_) fence_stuck(seat, detector_.stuck_time());
  if (!ended_) watch_shadows(now);
  runtime_.call_at(detector_.next_look(now), [weak = weak()] {
    if (auto self = weak.lock(); self && !(*self)->ended_) (*self)->watch();
  });
}

void Coordinator::Impl::fence_stuck(const Seat& seat, Duration waited) {
  if (!membership_.is_current(seat)) return;
  const std::uint32_t times = detector_.count_stuck(seat.peer);
  std::string why =
      fmt::format("it answers, but its device has ended nothing for {:.3g} s", to_seconds(waited));
  if (times < knobs().stuck_seats_max) return fence(seat, why);
  why += fmt::format(", {} times without a contribution between", times);
  fence(seat, why, Goes::kLeft);
}

void Coordinator::Impl::fence(const Seat& seat, const std::string& why, Goes how) {
  if (!membership_.is_current(seat) || ended_) return;
  const Member member = membership_.at(seat.peer);
  const bool takes_followed_stage = how == Goes::kMoves && takes_followed(member);
  membership_.fence(seat);
  if (auto kept = journal_.record_seat({.seat = seat,
                                        .address = member.address,
                                        .state = how == Goes::kLeft ? "left" : "fenced"});
      !kept)
    return journal_failed(kept.error());
  static constexpr const char* kEvents[] = {"peer_lost", "peer_lost", "peer_left", "peer_moves"};
  event(kEvents[static_cast<int>(how)], to_string(seat) + ": " + why);
  detector_.forget(seat.peer);
  if (const SessionPtr session = sessions_.unseat(seat.peer)) {
    if (how == Goes::kLeft) {
      wire::Shutdown shutdown;
      shutdown.set_reason(why);
      session->channel->notify(make_frame(MessageKind::kShutdown, shutdown));
      session->channel->close();
    } else {
      send_fenced(*session, why, how == Goes::kLost,
                  takes_followed_stage ? member.moves_to : std::nullopt);
    }
  }
  sources_.erase(seat.peer);
  desk_.lost(seat);
  ledger_.seat_lost(seat);
  lose_shadows_of(seat);
  audit_.forget(seat);
  expected_.erase(seat.peer);
  if (collecting_) {
    collecting_->holdings.erase(seat);
    return no_longer_awaited(seat);
  }
  if (state_ == State::kWaiting) {
    if (how != Goes::kFailed) return start_if_formed();
    if (!trained_) return stage_is_gone(seat, why, how);
    why_waiting_ = fmt::format("{} failed: {}", to_string(seat), why);
    return start_if_formed();
  }
  if (membership_.ready_of(seat.stage).empty() && !awaits_heir(seat, why, how))
    return stage_is_gone(seat, why, how);
  balancer_.seats_changed();

  wire::PeerLost lost;
  *lost.mutable_seat() = to_wire(seat);
  lost.set_reason(why);
  broadcast(make_frame(MessageKind::kPeerLost, lost));
  send_membership();
  checkpoint_lost(seat);
  after_loss_in_rounds(seat);
  freeze_states();
  for (const Phase& phase : ledger_.open_phases()) after_progress(phase);
  advance();
  take_over();
}

void Coordinator::Impl::stage_is_gone(const Seat& last, const std::string& why, Goes how) {
  const Member& member = membership_.at(last.peer);
  const std::string who = fmt::format("peer {} \"{}\" of stage {} ({})", last.peer.value,
                                      member.name, last.stage.value, member.address);
  if (how == Goes::kFailed) return fail_run(fmt::format("{} failed: {}", who, why));
  begin_from_checkpoint(fmt::format("{} was lost: {}", who, why));
}

void Coordinator::Impl::send_fenced(const Session& session, const std::string& why, bool keeps,
                                    std::optional<StageId> takes) {
  wire::Fenced fenced;
  *fenced.mutable_seat() = to_wire(session.seat);
  fenced.set_reason(why);
  fenced.set_keeps(keeps);
  fenced.set_takes_stage(takes.has_value());
  if (takes) fenced.set_stage(takes->value);
  session.channel->notify(make_frame(MessageKind::kFenced, fenced));
  session.channel->close();
}

// It takes nothing new, averages what it has, and goes at a commit, when it owns nothing. If its
// own time is shorter than that it goes sooner, and what it owned is computed again.
void Coordinator::Impl::on_leave(const Seat& seat) {
  Member& member = membership_.at(seat.peer);
  if (member.draining && !member.moves_to) return;
  member.moves_to.reset();
  if (member.state != MemberState::kReady) return fence(seat, "it left", Goes::kLeft);
  member.draining = true;
  member.in_flight = 1;  // what it said before may be over; its next heartbeat says what it holds
  event("peer_draining", to_string(seat));
  send_membership();
  release_drained();
}

void Coordinator::Impl::release_drained() {
  std::vector<Seat> free;
  for (const auto& [peer, member] : membership_.members()) {
    const Seat& seat = member.seat;
    if (!member.draining || !serves(seat) || member.in_flight > 0) continue;
    // The last one of its stage stays until another holds the stage's state.
    bool needed = membership_.staying_of(seat.stage).empty() || catches_up(member);
    for (const Phase& phase : ledger_.open_phases())
      needed = needed || (phase.kind == PhaseKind::kTrain &&
                          !ledger_.owned_by(phase, seat.stage, peer).empty());
    if (board_.active())
      needed = needed || board_.is_member(shape_.groups.groups_of(seat.stage).front(), seat);
    if (checkpoint_) {
      const auto saver = checkpoint_->savers.find(seat.stage.value);
      needed = needed || (saver != checkpoint_->savers.end() && saver->second == seat);
    }
    if (!needed) free.push_back(seat);
  }
  for (const Seat& seat : free) {
    if (ended_ || membership_.staying_of(seat.stage).empty()) continue;
    const Member& member = membership_.at(seat.peer);
    const std::string why = member.let_go.empty() ? "drained" : member.let_go;
    member.moves_to ? fence(seat, fmt::format("to stage {}", member.moves_to->value), Goes::kMoves)
                    : fence(seat, why, Goes::kLeft);
  }
}

bool Coordinator::Impl::serves(const Seat& seat) const {
  return membership_.is_current(seat) &&
         membership_.members().at(seat.peer).state == MemberState::kReady;
}

bool Coordinator::Impl::follows(const Seat& seat) const {
  return membership_.is_current(seat) &&
         membership_.members().at(seat.peer).state == MemberState::kFollowing;
}

}  // namespace swarmline
