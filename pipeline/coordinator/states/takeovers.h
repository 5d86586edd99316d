// Stages that nobody serves any more, while a shadow's host is on its way there: it leaves its own
// stage, comes back with a seat at the emptied one, and goes on inside the open step.
//   Life:      emptied -> (a candidate is sent) sent -> (it has a seat) seated -> (it holds the
//              committed version) taken over. Each has a deadline; whoever misses it is done
//              without, and the next candidate is sent. Where there is no other, one that was sent
//              may not have heard of it: it is waited for as long as that is worth it.
//   Errors:    no candidate left: the stage is gone, and the run goes back (or ends, where the last
//              one failed).
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Bounds:    one entry a stage; knobs().catch_up_time, return_time, build_time; run/bargain.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/ids.h"
#include "base/units.h"
#include "pipeline/coordinator/members/link_probe.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/event_log.h"
#include "pipeline/coordinator/run/rulings.h"
#include "pipeline/coordinator/run/run_observer.h"
#include "pipeline/coordinator/run/run_sequence.h"
#include "pipeline/coordinator/states/shadow_desk.h"
#include "pipeline/coordinator/states/standby_replicas.h"
#include "pipeline/coordinator/steps/commit_round.h"

namespace swarmline {

class Takeovers final : public RunObserver {
 public:
  struct Needs {  // services, and parts below it
    Alarms& alarms;
    const RunSequence& sequence;
    Membership& members;
    const ShadowDesk& shadows;
    StandbyReplicas& standbys;
    CommitRound& round;
    LinkProbe& probe;
    EventLog& events;
    Rulings& rulings;
  };
  // `patience`: what waiting is worth now.
  Takeovers(const Needs& needs, std::function<Duration()> patience)
      : in_(needs), patience_(std::move(patience)) {}

  // The stage's last member is lost. False: no shadow can take it over.
  bool await_candidate(const SeatLoss& last);
  bool any() const { return !emptied_.empty(); }
  bool is_emptied(StageId stage) const { return emptied_.contains(stage); }
  // Who would be sent to the stage now.
  std::optional<Seat> candidate_for(StageId stage) const;
  // This lost seat's peer was sent to take a stage over.
  bool was_sent(const Member& before) const;
  bool awaits(const Seat& seat) const;  // it was, and has this seat at the stage
  void seated(const Seat& seat);        // it has come back, with its seat at the stage
  // It holds what is committed. False: it takes nothing over.
  enum class Arrival : std::uint8_t { kNone, kWrongState, kTakenOver };
  Arrival on_ready(const Seat& seat, std::uint64_t version, std::uint64_t digest);

  // ---- Moves to a stage that the mover follows ----
  bool takes_followed(const Member& member) const;  // it can begin there with what it holds
  bool catches_up(const Member& member) const;      // it will be able to in a moment

  // ---- Settling ----
  void wake() { dirty_ = true; }
  bool is_due() const { return dirty_ && !emptied_.empty(); }
  void send_candidates();
  void check_deadlines();
  void restart_deadlines();
  std::uint32_t given_up() const { return given_up_; }  // waits, ever

  void on_rollback() override { emptied_.clear(); }
  void check_invariants() const;

 private:
  struct Emptied {
    SeatLoss last;             // who served it, and how that ended
    std::optional<Seat> sent;  // the shadow whose host was sent
    std::uint64_t digest = 0;  // of what it holds
    std::optional<Seat> seat;  // its host's at the stage, once it has come back
    Instant deadline{};        // for what comes next
    Instant sent_at{};
    bool is_last = false;  // there was no other to send when it had missed its deadline
  };
  bool goes_on_waiting(StageId stage, Emptied& emptied);
  void give_up_candidate(Emptied& emptied);
  bool send_candidate(StageId stage);

  Needs in_;
  std::function<Duration()> patience_;
  std::map<StageId, Emptied> emptied_;
  std::uint32_t given_up_ = 0;
  bool dirty_ = false;
};

}  // namespace swarmline
