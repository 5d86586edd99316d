// Who goes: peers that leave, that the planner sends to another stage, or that it lets go.
//   What:      whoever is to go drains: it gets nothing new, and its seat ends when it owns nothing
//              any more and its stage can do without it. A move comes back as a newcomer at the
//              stage chosen. At commits the planner is asked, when seats have changed or a period
//              has passed; where seats change inside a step that still takes far longer than a
//              mover needs to give away what it has added, at once (steps/sum_hand_overs.h).
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Bounds:    a look at each member a commit, at each heartbeat of one that drains, and every
//              knobs().hand_over_look inside a step at most.
#pragma once

#include <optional>

#include "base/ids.h"
#include "pipeline/coordinator/members/balance_desk.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/event_log.h"
#include "pipeline/coordinator/run/rulings.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/coordinator/run/run_stats.h"
#include "pipeline/coordinator/states/checkpointer.h"
#include "pipeline/coordinator/states/kept_heirs.h"
#include "pipeline/coordinator/states/standby_replicas.h"
#include "pipeline/coordinator/states/takeovers.h"
#include "pipeline/coordinator/steps/commit_round.h"
#include "pipeline/ledger/ledger.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

class Relocation {
 public:
  struct Needs {  // services, and parts below it
    const RunShape& shape;
    Alarms& alarms;
    Membership& members;
    BalanceDesk& balancer;
    const Ledger& ledger;
    const CommitRound& round;
    const RunStats& stats;
    const Checkpointer& checkpointer;
    const ShadowDesk& shadows;
    StandbyReplicas& standbys;
    const Takeovers& takeovers;
    const KeptHeirs& kept_heirs;
    EventLog& events;
    Rulings& rulings;
  };
  explicit Relocation(const Needs& needs) : in_(needs) {}

  // Where a newcomer of a run that trains should serve. Empty: where most is missing.
  std::optional<StageId> place(const wire::Hello& hello, std::uint64_t committed) const;
  // It takes nothing new, averages what it has, and goes when it owns nothing: if it goes sooner,
  // it says `in` what time, and gives what it has added to a mate (steps/sum_hand_overs.h).
  void on_leave(const Seat& seat, std::optional<Duration> in = {});
  // Its machine may be taken soon: it goes on, and its stage gets a shadow if it has nobody else.
  void on_risk(const Seat& seat);
  // A step is committed: moves and shadows as the planner says.
  void plan();
  // Seats have changed since, and movers need not wait for the open step's commit.
  bool plans_inside_step() const;
  void plan_inside_step();

  void wake() { dirty_ = true; }
  bool is_due() const { return dirty_; }
  void release_drained();
  // Views of who serves have to be told anew.
  bool take_views_changed() { return std::exchange(views_changed_, false); }

 private:
  void carry_out(const SwarmPlan& plan);
  bool is_long(const Phase& phase) const;  // enough for a mover to give its sums away
  void call_off_moves();
  void begin_move(const PlanMove& move, const SwarmPlan& plan);
  bool is_needed(const Member& member) const;
  void drain(Member& member);
  std::optional<StageId> kept_stage(const wire::Hello& hello, std::uint64_t committed) const;

  Needs in_;
  bool dirty_ = false;
  bool views_changed_ = false;
  Instant planned_inside_{};  // a step
};

}  // namespace swarmline
