#include "pipeline/coordinator/states/kept_heirs.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "base/marks.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

void KeptHeirs::may_keep(PeerId peer, StageId stage) {
  if (in_.sequence.committed() > 0) away_[stage].insert(peer);
}

void KeptHeirs::came_back(PeerId peer) {
  for (auto& [stage, peers] : away_) peers.erase(peer);
  dirty_ = true;
}

bool KeptHeirs::await(const SeatLoss& last) {
  const StageId stage = last.seat.stage;
  dirty_ = true;
  if (emptied_.contains(stage)) return true;
  const Duration patience = std::min<Duration>(patience_(), knobs().return_time);
  if (patience <= Duration{}) return false;
  if (!is_away(stage, last.seat.peer) && !has_heir(stage) && !may_be_called_back(stage) &&
      !has_fetched_perhaps(stage) && !may_be_freed(stage))
    return false;
  SWARMLINE_MARK("kept_heirs.awaited");
  emptied_[stage] = {.last = last, .patience = patience, .until = in_.alarms.now() + patience};
  in_.events.event(
      "waiting",
      fmt::format("nobody serves stage {} any more; the run waits {:.3g} s at most for "
                  "one that may have its state yet",
                  stage.value, to_seconds(patience)),
      LogLevel::kWarn);
  ask_whether_they_live(stage);
  for (const StageId host_stage : stages_of_bound_shadows(stage)) ask_whether_they_live(host_stage);
  return true;
}

void KeptHeirs::ask_whether_they_live(StageId stage) {
  const std::set<PeerId> away = away_[stage];
  for (const PeerId peer : away) {
    const auto member = in_.members.members().find(peer);
    if (member == in_.members.members().end()) continue;
    in_.probe.ask(member->second, [this, stage, seat = member->second.seat](const std::string&) {
      const auto now = in_.members.members().find(seat.peer);
      if (now == in_.members.members().end() || now->second.seat != seat) return;
      SWARMLINE_MARK("kept_heirs.gone");
      away_[stage].erase(seat.peer);
      dirty_ = true;
    });
  }
}

// ---- Who may have it ----------------------------------------------------------------------------

bool KeptHeirs::is_away(StageId stage, std::optional<PeerId> besides) const {
  const auto away = away_.find(stage);
  return away != away_.end() &&
         std::ranges::any_of(away->second, [&](PeerId peer) { return peer != besides; });
}

bool KeptHeirs::has_heir(StageId stage) const {
  return in_.members.has_copy(stage, in_.sequence.committed());
}

std::set<StageId> KeptHeirs::stages_of_bound_shadows(StageId stage) const {
  std::set<StageId> hosts;
  for (const Seat& shadow : in_.shadows.ready_of(stage)) {
    const ShadowDesk::Shadow& one = in_.shadows.all().at(shadow);
    if (one.has >= in_.sequence.committed()) hosts.insert(one.host_stage);
  }
  return hosts;
}

// A shadow has it whose host is the last one of its own stage, to which another is coming back.
bool KeptHeirs::may_be_freed(StageId stage) const {
  return std::ranges::any_of(stages_of_bound_shadows(stage), [this](StageId host_stage) {
    return is_away(host_stage) || has_heir(host_stage) || has_fetched_perhaps(host_stage);
  });
}

bool KeptHeirs::wants_back(StageId stage) const {
  return in_.members.count_ready(stage) == 0 ||
         std::ranges::any_of(emptied_, [&](const auto& entry) {
           return stages_of_bound_shadows(entry.first).contains(stage);
         });
}

// What it has fetched was of those that are lost, and it has not said that it lacks any of it.
bool KeptHeirs::has_fetched_perhaps(StageId stage) const {
  const auto shadow = [&](const auto& entry) {
    return entry.first.stage == stage && entry.second.follows && !entry.second.ready;
  };
  const auto joiner = [&](const auto& entry) {
    const Member& member = entry.second;
    return member.seat.stage == stage && member.state == MemberState::kFollowing &&
           !in_.states.waits(member.seat);
  };
  return std::ranges::any_of(in_.shadows.all(), shadow) ||
         std::ranges::any_of(in_.members.members(), joiner);
}

bool KeptHeirs::may_be_called_back(StageId stage) const {
  return in_.members.copy_elsewhere(stage, in_.sequence.committed()).has_value();
}

// One after another: the stages where the others are seated need them, too.
void KeptHeirs::call_back(StageId stage, Emptied& emptied) {
  if (has_heir(stage) || (emptied.called && away_[stage].contains(*emptied.called))) return;
  const auto holder = in_.members.copy_elsewhere(stage, in_.sequence.committed());
  if (!holder) return;
  SWARMLINE_MARK("kept_heirs.called_back");
  emptied.called = holder->peer;
  in_.rulings.lose(*holder, fmt::format("it has what stage {} has lost", stage.value),
                   Departure::kMoves);
}

bool KeptHeirs::is_hopeless(StageId stage, Emptied& emptied) const {
  const Instant now = in_.alarms.now();
  const bool heir = has_heir(stage);
  if (heir && !std::exchange(emptied.has_heir, true)) {
    SWARMLINE_MARK("kept_heirs.came_back");
    emptied.until = now + knobs().build_time;
  }
  const bool somebody = heir || is_away(stage) || may_be_called_back(stage) ||
                        has_fetched_perhaps(stage) || may_be_freed(stage);
  return !somebody || now >= emptied.until;
}

// ---- Settling -----------------------------------------------------------------------------------

void KeptHeirs::check() {
  dirty_ = false;
  for (auto it = emptied_.begin(); it != emptied_.end();) {
    auto& [stage, emptied] = *it;
    const bool served = in_.members.count_ready(stage) > 0;
    if (served) SWARMLINE_MARK("kept_heirs.inherited");
    const bool taken_over = !served && in_.takeovers.await_candidate(emptied.last);
    if (taken_over) SWARMLINE_MARK("kept_heirs.a_shadow_has_it");
    const bool gone = !served && !taken_over && is_hopeless(stage, emptied);
    if (gone) in_.rulings.stage_is_gone(emptied.last);
    if (!served && !taken_over && !gone) call_back(stage, emptied);
    it = served || taken_over || gone ? emptied_.erase(it) : std::next(it);
  }
}

void KeptHeirs::restart_deadlines() {
  for (auto& [stage, emptied] : emptied_)
    emptied.until = in_.alarms.now() + (emptied.has_heir ? knobs().build_time : emptied.patience);
}

void KeptHeirs::on_seat_lost(const SeatLoss& /*lost*/) {
  dirty_ = true;
}

void KeptHeirs::on_retired(const Phase& phase) {
  if (phase.kind == PhaseKind::kTrain) away_.clear();
}

void KeptHeirs::on_rollback() {
  away_.clear();
  emptied_.clear();
}

}  // namespace swarmline
