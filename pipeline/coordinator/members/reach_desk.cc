#include "pipeline/coordinator/members/reach_desk.h"

#include <algorithm>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "base/marks.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

// ---- Newcomers ----------------------------------------------------------------------------------

bool ReachDesk::knows(const SessionPtr& session, const wire::Hello& hello,
                      std::function<void()> known) {
  if (session->is_probed || session->reach != Reach::kUnknown) return !session->is_probed;
  const Connection& link = session->channel->connection();
  if (!link.peer_key()) return true;  // nobody could tell who answers
  const auto address = parse_address(hello.address());
  const Member* const before = in_.members.former(hello);
  if (!address || !is_own_address(hello.address(), link)) {
    session->reach = Reach::kElsewhere;
  } else if (before != nullptr && before->address == hello.address()) {
    session->reach = before->reach;
  } else if (probes_ >= kProbesMax) {
    SWARMLINE_MARK("reach.too_many_at_once");
    return true;
  }
  if (session->reach != Reach::kUnknown) return true;
  probe(session, *address, hello.key(), std::move(known));
  return false;
}

void ReachDesk::probe(const SessionPtr& session, const Address& address, const std::string& key,
                      std::function<void()> known) {
  ++probes_;
  session->is_probed = true;
  auto reached = in_.alarms.then_settle([this, session, known = std::move(known)](bool answers) {
    --probes_;
    session->is_probed = false;
    session->reach = answers ? Reach::kYes : Reach::kNo;
    if (!answers) SWARMLINE_MARK("reach.newcomer_not_reached");
    known();
  });
  dial({.address = address,
        .key = key,
        .until = in_.alarms.now() + knobs().probe_time,
        .reached = std::move(reached)});
}

// Told to come again before its time is over (the run's key has just changed), it comes once more.
void ReachDesk::dial(Probe probe) {
  in_.network.connect(
      probe.address, probe.until - in_.alarms.now(),
      [this, alive = in_.alarms.watch(),
       probe](const Result<std::shared_ptr<Connection>>& dialled) mutable {
        const bool answers = dialled && has_key(**dialled, probe.key);
        if (dialled) {
          (*dialled)->start({.on_frame = [](Frame) {}, .on_closed = [](const Error&) {}});
          (*dialled)->close();
        }
        if (alive.expired()) return;
        if (!dialled && dialled.error().code == ErrorCode::kDeadline &&
            in_.alarms.now() < probe.until && !std::exchange(probe.is_second, true)) {
          SWARMLINE_MARK("reach.told_to_come_again");
          return dial(std::move(probe));
        }
        probe.reached(answers);
      });
}

// ---- Places -------------------------------------------------------------------------------------

std::optional<StageId> ReachDesk::place(Reach newcomer, std::optional<StageId> chosen,
                                        const RunShape& shape) const {
  if (newcomer != Reach::kNo || in_.relays.any()) return chosen;
  std::optional<StageId> best;
  bool differs = chosen.has_value();
  const auto worth = [&](StageId stage) {
    const auto lacks = static_cast<std::int64_t>(in_.members.target_of(stage)) -
                       static_cast<std::int64_t>(in_.members.live_of(stage));
    return std::tuple(-static_cast<std::int64_t>(out_of_reach_at(stage, shape)), stage == chosen,
                      lacks);
  };
  for (const StageSpec& spec : shape.stages) {
    if (in_.members.live_of(spec.stage) >= in_.members.target_of(spec.stage)) continue;
    differs = differs || out_of_reach_at(spec.stage, shape) > 0;
    if (!best || worth(spec.stage) > worth(*best)) best = spec.stage;
  }
  if (!best || !differs ||
      (chosen && out_of_reach_at(*best, shape) >= out_of_reach_at(*chosen, shape)))
    return chosen;
  SWARMLINE_MARK("reach.placed_where_it_is_met");
  return best;
}

// Whom one that serves the stage must have links to, and nobody reaches.
std::size_t ReachDesk::out_of_reach_at(StageId stage, const RunShape& shape) const {
  std::set<StageId> met;
  for (const GroupId group : shape.groups.groups_of(stage))
    for (const StageId other : shape.groups.stages_of(group)) met.insert(other);
  std::size_t count = 0;
  for (const auto& [peer, member] : in_.members.members()) {
    const int apart = int{member.seat.stage.value} - int{stage.value};
    const bool links = met.contains(member.seat.stage) || apart == 1 || apart == -1;
    count += links && member.reach == Reach::kNo && member.state != MemberState::kLost;
  }
  return count;
}

// ---- Calls --------------------------------------------------------------------------------------

void ReachDesk::on_call_me(const Seat& from, const wire::CallMe& call) {
  const Seat beyond = from_wire(call.beyond());
  if (beyond.peer == from.peer || !hears(beyond) || !may_ask(from.peer))
    return nobody_calls(from, beyond);
  if (can_hardly_meet(from.peer, beyond.peer) && meet(from, beyond)) return;
  SWARMLINE_MARK("reach.call");
  calls_[{beyond.peer, from.peer}] = in_.alarms.now();
  forget_old_calls();
  wire::Call passed_on;
  *passed_on.mutable_to() = to_wire(from);
  passed_on.set_address(in_.members.members().at(from.peer).address);
  in_.outbox.send(beyond, make_frame(MessageKind::kCall, passed_on));
}

bool ReachDesk::can_hardly_meet(PeerId one, PeerId other) const {
  const auto shut = [this](PeerId peer) {
    const auto member = in_.members.members().find(peer);
    return member != in_.members.members().end() && member->second.reach == Reach::kNo;
  };
  return are_apart(one, other) || (shut(one) && shut(other));
}

// Who asked dials.
bool ReachDesk::meet(const Seat& asker, const Seat& beyond) {
  const auto meeting = in_.relays.meet();
  if (!meeting) return false;
  SWARMLINE_MARK("reach.meet_at_a_relay");
  wire::Meet meet;
  meet.set_relay(meeting->address);
  meet.set_ticket(meeting->ticket);
  *meet.mutable_to() = to_wire(asker);
  in_.outbox.send(beyond, make_frame(MessageKind::kMeet, meet));
  *meet.mutable_to() = to_wire(beyond);
  meet.set_dials(true);
  in_.outbox.send(asker, make_frame(MessageKind::kMeet, meet));
  return true;
}

// Over a connection that stands, as far as is known.
bool ReachDesk::hears(const Seat& seat) const {
  const SessionPtr session = in_.sessions.of(seat.peer);
  return in_.members.is_current(seat) && session && !session->closed;
}

bool ReachDesk::may_ask(PeerId peer) {
  Asked& asked = asked_[peer];
  const Instant now = in_.alarms.now();
  if (now - asked.since >= std::chrono::seconds(1)) asked = {.since = now};
  if (++asked.calls <= kCallsMax) return true;
  SWARMLINE_MARK("reach.asks_too_often");
  return false;
}

void ReachDesk::nobody_calls(const Seat& asker, const Seat& beyond) {
  wire::OutOfReach answer;
  *answer.mutable_beyond() = to_wire(beyond);
  in_.outbox.send(asker, make_frame(MessageKind::kOutOfReach, answer));
}

void ReachDesk::on_out_of_reach(const Seat& from, const wire::OutOfReach& message) {
  const Seat asker = from_wire(message.beyond());
  if (calls_.erase({from.peer, asker.peer}) == 0 || !in_.members.is_current(asker)) return;
  SWARMLINE_MARK("reach.neither_end_reaches_the_other");
  apart_[std::minmax(from.peer, asker.peer)] = in_.alarms.now();
  if (meet(asker, from)) return;
  nobody_calls(asker, from);
  say_apart(asker, from);
}

void ReachDesk::forget_old_calls() {
  if (calls_.size() <= kCallsKept) return;
  std::erase_if(calls_,
                [&](const auto& call) { return in_.alarms.now() - call.second > kCallLife; });
  if (calls_.size() > kCallsKept) calls_.erase(calls_.begin());
}

// ---- Out of reach -------------------------------------------------------------------------------

bool ReachDesk::are_apart(PeerId one, PeerId other) const {
  const auto pair = apart_.find(std::minmax(one, other));
  return pair != apart_.end() && in_.alarms.now() - pair->second < knobs().apart_time;
}

void ReachDesk::say_apart(const Seat& one, const Seat& other) {
  const Instant now = in_.alarms.now();
  std::erase_if(apart_, [&](const auto& pair) { return now - pair.second >= knobs().apart_time; });
  if (said_ != Instant{} && now - said_ < kLinePause) return;
  said_ = now;
  in_.events.event("out_of_reach",
                   fmt::format("{} and {} take no connections from each other ({} such pairs now); "
                               "open a port of one of the two for the other, or run a relay ({})",
                               in_.events.who(one), in_.events.who(other), apart_.size(),
                               in_.relays.any() ? "those of this run are full" : "swarmline relay"),
                   LogLevel::kWarn);
}

void ReachDesk::on_seat_lost(const SeatLoss& lost) {
  const PeerId gone = lost.seat.peer;
  const auto of_it = [gone](const auto& pair) {
    return pair.first.first == gone || pair.first.second == gone;
  };
  std::erase_if(calls_, of_it);
  std::erase_if(apart_, of_it);
  asked_.erase(gone);
}

void ReachDesk::on_rollback() {
  calls_.clear();
  apart_.clear();
  asked_.clear();
}

}  // namespace swarmline
