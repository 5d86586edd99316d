#include "pipeline/coordinator/run/recovery.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/marks.h"
#include "pipeline/coordinator/members/heartbeat_pace.h"
#include "pipeline/ledger/ledger.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

bool CollectedHoldings::names_step(std::uint64_t step) const {
  return std::ranges::any_of(holdings, [&](const auto& entry) {
    return std::ranges::any_of(entry.second.phases(), [&](const wire::PhaseHoldings& held) {
      return !held.phase().eval() && held.phase().step() == step;
    });
  });
}

void Recovery::begin(const JournaledRun& run, Term term, bool heard_nobody) {
  CollectedHoldings& collected = collected_.emplace();
  collected.era = run.era;
  collected.evaluated = run.evaluated;
  collected.committed = run.era_version;
  if (run.era_updates_known) collected.updates = run.era_updates;
  if (run.last_commit && run.last_commit->era == run.era.value) {
    collected.last_commit = run.last_commit;
    collected.committed = run.last_commit->version;
  }
  in_.members.begin_after(run.newest_peer);
  for (const SeatRecord& seat : run.seats) in_.members.restore(seat, seat.state == "active");
  for (const Seat& seat : in_.members.away()) collected.awaited.insert(seat);
  heard_nobody_ = heard_nobody;
  waits_longer_ = false;
  began_ = in_.alarms.now();
  over_ = false;
  cut_off_ = heard_nobody;
  calm_ = true;  // until somebody comes
  came_.clear();
  in_.events.event("begun_again",
                   fmt::format("term {}, after step {}; waiting for {} peers", term.value,
                               collected.committed, collected.awaited.size()));
  arm_deadline();
}

// ---- Who comes ----------------------------------------------------------------------------------

void Recovery::heard_somebody() {
  if (!collected_ || !std::exchange(heard_nobody_, false)) return;
  SWARMLINE_MARK("recovery.heard_somebody");
  arm_deadline();
}

// What it holds fits what the journal says.
bool Recovery::resumes(const wire::Hello& hello, const std::string& run_id) const {
  if (!collected_ || !hello.has_holdings() || hello.run_id() != run_id) return false;
  const Seat seat = from_wire(hello.previous());
  if (!collected_->awaited.contains(seat) && !collected_->holdings.contains(seat)) return false;
  const std::uint64_t committed = collected_->committed;
  const std::uint64_t heard = hello.holdings().version();
  if (hello.holdings().era() != collected_->era.value) return false;
  const Member& member = in_.members.members().at(seat.peer);
  return member.address == hello.address() && member.key == hello.key() && heard <= committed &&
         heard + 1 >= committed && hello.holdings().leased() <= hello.holdings().wanted() &&
         static_cast<std::size_t>(hello.holdings().phases_size()) <= Ledger::kOpenPhasesMax;
}

void Recovery::resume(const SessionPtr& session, const wire::Hello& hello) {
  SWARMLINE_MARK("recovery.peer_resumed");
  const Seat seat = from_wire(hello.previous());
  if (const SessionPtr before = in_.sessions.unseat(seat.peer)) {
    before->seat = {};  // it is here again before the end of that connection was seen
    in_.outbox.close(before);
  }
  in_.sessions.seat(session, seat);
  in_.detector.watch(seat, in_.alarms.now());
  in_.detector.works_from(seat, in_.alarms.now());
  in_.members.resume(hello);
  in_.events.of_peer(seat, "peer_resumed", " at " + hello.address());
  if (came_.insert(seat).second) {
    last_came_ = in_.alarms.now();
    if (came_.size() == 1) first_came_ = last_came_;
  }
  const bool first = collected_->holdings.empty();
  collected_->holdings[seat] = hello.holdings();
  collected_->awaited.erase(seat);
  if (first) arm_deadline();
  arm_quiet();
  arm_calm();
}

bool Recovery::is_awaited_again(const Session& session) {
  const Seat seat = session.seat;
  if (!collected_ || collected_->holdings.erase(seat) == 0) return false;
  SWARMLINE_MARK("recovery.awaited_again");
  in_.sessions.unseat(seat.peer);
  in_.detector.forget(seat.peer);
  in_.members.become(seat.peer, MemberState::kAway);
  collected_->awaited.insert(seat);
  arm_quiet();
  return true;
}

// The silence may be this end's. What the peer holds it says again; whoever is gone does not come.
bool Recovery::hangs_up_on(const Seat& silent) {
  const SessionPtr session = in_.sessions.of(silent.peer);
  if (!session || session->seat != silent || !is_awaited_again(*session)) return false;
  SWARMLINE_MARK("recovery.hung_up");
  session->seat = {};
  in_.outbox.close(session);
  return true;
}

void Recovery::on_seat_lost(const SeatLoss& lost) {
  if (!collected_) return;
  collected_->holdings.erase(lost.seat);
  collected_->awaited.erase(lost.seat);
}

// One whose message would be lost says all of it again, when it comes back; what it said over a
// connection that has ended it knows to be lost.
bool Recovery::hold(const SessionPtr& session, std::uint64_t bytes, std::function<void()> handle) {
  if (!collected_) return false;
  if (collected_->held.size() < kHeldMax &&
      collected_->held_bytes + bytes <= Limits::messages_held_bytes_max) {
    collected_->held_bytes += bytes;
    collected_->held.push_back([session, handle = std::move(handle)] {
      if (!session->closed) handle();
    });
  } else {
    SWARMLINE_MARK("recovery.holds_enough");
    log(LogLevel::kWarn, "closing {}: {} messages wait for the collecting to end already",
        to_string(session->seat), collected_->held.size());
    in_.outbox.close(session);
  }
  return true;
}

// ---- How long -----------------------------------------------------------------------------------

// Where a standby may have taken over, peers first have to find out that it did.
void Recovery::arm_deadline() {
  const NetSection& net = in_.shape.config.net;
  Duration wait = from_seconds(net.collect_seconds);
  if (!net.standby.empty() && collected_->holdings.empty()) {
    HeartbeatPace pace(net);  // under the coordinator before
    pace.count(collected_->awaited.size());
    wait += 2 * (std::max<Duration>(knobs().coordinator_silence, 10 * pace.usual()) +
                 (pace.now() - pace.usual()));
  }
  if (heard_nobody_) wait = std::max(wait, from_seconds(net.peers_wait_seconds));
  deadline_.arm(wait, [this] { on_deadline(); });
}

void Recovery::on_deadline() {
  if (!collected_) return;
  if (hears_nobody()) return wait_for_anybody();
  if (they_still_come()) {
    SWARMLINE_MARK("recovery.they_still_come");
    return deadline_.arm(knobs().redial_time, [this] { on_deadline(); });
  }
  const std::vector<StageId> missing = stages_without_anybody();
  if (!missing.empty() && !std::exchange(waits_longer_, true))
    return wait_for_the_last_ones(missing);
  give_up_waiting();
}

// The hellos of a large swarm take longer to read than its peers take to dial. Who comes a second
// time is no progress.
bool Recovery::they_still_come() const {
  const Instant now = in_.alarms.now();
  return !came_.empty() && now - last_came_ < knobs().redial_time &&
         now - first_came_ < from_seconds(in_.shape.config.net.peers_wait_seconds);
}

// Whoever came has gone again, or is not heard any more: newcomers neither.
bool Recovery::hears_nobody() const {
  return in_.detector.is_deaf(in_.alarms.now()) ||
         std::ranges::all_of(in_.members.members(), [](const auto& entry) {
           return entry.second.state == MemberState::kAway ||
                  entry.second.state == MemberState::kLost;
         });
}

void Recovery::give_up_waiting() {
  SWARMLINE_MARK("recovery.deadline");
  over_ = true;
  if (!stages_without_anybody().empty()) ++given_up_;
}

std::vector<StageId> Recovery::stages_without_anybody() const {
  std::vector<StageId> stages;
  for (const StageSpec& stage : in_.shape.stages)
    if (in_.members.count_ready(stage.stage) == 0) stages.push_back(stage.stage);
  return stages;
}

// What they hold nobody else does: their addresses say whether they are gone.
void Recovery::wait_for_the_last_ones(const std::vector<StageId>& stages) {
  const Duration waited = in_.alarms.now() - began_, worth = patience_();
  if (worth <= waited) return give_up_waiting();
  SWARMLINE_MARK("recovery.waits_for_the_last_ones");
  in_.events.event("waiting",
                   fmt::format("nobody of stage {} has come back; the run waits {:.3g} s more at "
                               "most, then it goes back without them",
                               stages.front().value, to_seconds(worth - waited)),
                   LogLevel::kWarn);
  deadline_.arm(worth - waited, [this] {
    if (collected_) hears_nobody() ? wait_for_anybody() : give_up_waiting();
  });
  for (const Seat& seat : collected_->awaited)
    if (std::ranges::find(stages, seat.stage) != stages.end()) in_.probe.ask(seat);
}

// Going back takes peers, too: who hears from nobody gains nothing by it. Those whose processes are
// gone refuse, and are not waited for.
void Recovery::wait_for_anybody() {
  const Duration waited = in_.alarms.now() - began_;
  const Duration most = from_seconds(in_.shape.config.net.outlast_seconds);
  if (most <= waited) return give_up_waiting();
  SWARMLINE_MARK("recovery.waits_for_anybody");
  in_.events.event("waiting",
                   fmt::format("nobody has come back to the coordinator; it waits {:.3g} s more at "
                               "most for anybody, then the run goes back",
                               to_seconds(most - waited)),
                   LogLevel::kWarn);
  heard_nobody_ = true;  // whoever comes first begins another wait, for the others
  deadline_.arm(most - waited, [this] {
    if (collected_) give_up_waiting();
  });
  for (const Seat& seat : collected_->awaited) in_.probe.ask(seat);
}

// Every stage has somebody, and for as long as a peer may be silent nobody came: the rest is as
// lost as if it had a coordinator. (With a standby, peers may still hang on the one before.) Where
// those that came are not heard any more either, it is this end: deadline_ bounds that.
void Recovery::arm_quiet() {
  quiet_.cancel();
  if (!in_.shape.config.net.standby.empty()) return;
  const Duration wait = std::max<Duration>(knobs().redial_time, in_.detector.silence_allowed());
  quiet_.arm(wait, [this, wait] {
    if (!collected_) return;
    if (in_.detector.unheard(in_.alarms.now()) > wait / 2) {
      SWARMLINE_MARK("recovery.quiet_because_deaf");
      return arm_quiet();
    }
    const bool held = stages_without_anybody().empty();
    if (held) SWARMLINE_MARK("recovery.quiet");
    over_ = over_ || held;
  });
}

// Once it is in reach again all comes at once: a hello that its peer has given up on, and the next
// one over another connection. Whoever comes after this is over would lose its seat.
void Recovery::arm_calm() {
  if (!cut_off_) return;
  calm_ = false;
  calm_due_.arm(knobs().collect_calm, [this] {
    if (collected_) calm_ = true;
  });
}

// ---- The end ------------------------------------------------------------------------------------

std::set<Seat> Recovery::take_missing() {
  over_ = true;
  return std::exchange(collected_->awaited, {});
}

CollectedHoldings Recovery::take() {
  SWARMLINE_CHECK(is_due() && collected_->awaited.empty());
  deadline_.cancel();
  quiet_.cancel();
  calm_due_.cancel();
  over_ = false;
  CollectedHoldings collected = std::move(*collected_);
  collected_.reset();
  return collected;
}

void Recovery::check_invariants() const {
  SWARMLINE_CHECK(collected_ || !over_);
  if (!collected_) return;
  for (const Seat& seat : collected_->awaited)
    SWARMLINE_CHECK(!collected_->holdings.contains(seat));
}

}  // namespace swarmline
