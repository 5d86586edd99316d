// The way on of a computed microbatch: which peer of the next stage takes it, what that one
// answers, and what is done when it does not answer.
//   Hops:      a timer covers one hop's work: sent -> forward done, and gradient arrived there ->
//              gradient here. A timeout is charged to the peer that stalled and the bytes go to
//              another one under a new attempt; the old attempt is cancelled. Late answers of
//              either attempt are the same numbers: the first one is used.
//   Early:     a leg that takes far longer than that peer's do (HopClock) gets its microbatch one
//              second try, at another peer that has room at once. That is no proof of a stall:
//              nobody is told, and it is no failed attempt. The peer is banned until it is heard
//              from, which an answer to the cancel does. Counted in swarmline_early_second_tries,
//              and limited by a budget (HedgeBudget). Fixed routes stay as they are.
//   Losses:    what was sent to a lost seat goes to another at once. Of a link that broke nothing
//              can be counted on, either. What waits for a link that nobody answers on for long, or
//              that can't be had, goes to another peer, and that one is left out (NextStage).
//   Links:     what bytes take over the link to a peer, either way, is told to the wiring as it is
//              measured: the receiver says when an activation came slower than it was computed.
//   Ownership: owns the candidates of the next stage and the names by which tasks went on. Of a
//              task it alone writes its way on: `next` to `hop_timer`, but for the output.
//   Thread:    control thread.
//   Errors:    frames that do not fit return kCorrupt. A task that nobody took is given to
//              Hooks::on_failed.
//   Bounds:    [net] outlast_seconds for a task that nobody takes; after
//              Limits::attempts_in_quick_succession sends each waits as long as all before it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/callback_guard.h"
#include "pipeline/protocol/hedge_budget.h"
#include "pipeline/stage/common/phase_book.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/microbatches/boundary_traffic.h"
#include "pipeline/stage/microbatches/hop_clock.h"
#include "pipeline/stage/microbatches/microbatch_task.h"
#include "pipeline/stage/microbatches/next_stage.h"

namespace swarmline {

class Forwarder {
 public:
  struct Hooks {
    std::function<void(const TaskPtr&)> on_end;  // an evaluation that the next hop has computed
    std::function<void(const TaskPtr&, const Error&)> on_failed;
  };
  enum class Why : std::uint8_t { kStalled, kBroken, kLinkLost, kLateLink, kPeerLost };

  Forwarder(StageContext& context, const PhaseBook& phases, BoundaryTraffic& traffic,
            std::unique_ptr<Wiring> wiring, Hooks hooks);
  ~Forwarder();

  // Who may take what goes on, from now on; retry_seeking() follows.
  void set_candidates(const std::vector<NextStage::Candidate>& candidates);
  void send_on(const TaskPtr& task);
  // Its way is given up, and it goes another one.
  void resend(const TaskPtr& task, Why why);
  // Whoever has it need not go on.
  void cancel(const TaskPtr& task);
  // The hop is answered.
  void settle(const TaskPtr& task);
  // The task has ended.
  void leave(const TaskPtr& task);
  // Those that wait for somebody to take them try again.
  void retry_seeking();

  Result<void> on_forward_done(const Seat& from, const wire::ForwardDone& message);
  void on_refused(const Seat& from, const wire::Refused& message);
  // That hop starts on its backward.
  void on_gradient_arrived(const Seat& from, const AttemptId& id);
  // The task that waits for that gradient; null: none does.
  TaskPtr on_gradient(const Seat& from, const wire::Gradient& message);
  // So long a gradient took to come.
  void on_returned(const Seat& from, Duration over);
  void on_credit(const Seat& from);
  // The coordinator passes on that `stalled` sits on a microbatch of ours.
  void on_stall(const Seat& stalled, const AttemptId& id);
  // What waits for an answer over that link goes elsewhere.
  void on_link_lost(const Seat& peer);
  void on_link_news(const Seat& peer, LinkNews news);
  // `tasks`: all of this stage.
  void on_peer_lost(const Seat& lost, const std::vector<TaskPtr>& tasks);
  // Whether there is a coordinator that has all its peers.
  void set_led(bool led, const std::vector<TaskPtr>& tasks);
  void on_over(const Phase& phase);
  void stop() { guard_.drop_callbacks(); }

  bool expects(const AttemptId& id) const { return outgoing_.contains(id); }
  void check_invariants() const;

 private:
  struct Superseded {  // a way on that was given up
    TaskPtr task;
    PeerId sent_to;
  };
  void send_to(const TaskPtr& task, const Seat& next);
  void report_stall(const TaskPtr& task, const Seat& stalled);
  bool count_failed_try(const TaskPtr& task, const Seat& old, Why why);
  bool tried_all(const MicrobatchTask& task) const;
  void try_all_again_later(const TaskPtr& task);
  void retry_seeking_after(Duration pause);
  void on_late_link(const Seat& peer);
  void try_link(const Seat& peer);
  Duration charged(const Seat& from, Duration over) const;
  void supersede(const TaskPtr& task);
  void cancel_at(const Seat& next, const AttemptId& id);
  void begin_leg(const TaskPtr& task, HopClock::Leg leg);
  void stop_hop_timer(const TaskPtr& task);
  void arm_hop_timer(const TaskPtr& task);
  void on_hop_timer(const TaskPtr& task, Instant due);
  bool may_be_passed_by(const MicrobatchTask& task) const;
  bool pass_by(const TaskPtr& task);
  double way_share() const { return 1.0 / std::max(context_.stage.stages - 1.0, 1.0); }
  TaskPtr outgoing(const AttemptId& id, const Seat& from);

  StageContext& context_;
  const PhaseBook& phases_;
  BoundaryTraffic& traffic_;
  NextStage next_;
  Hooks hooks_;
  const bool free_routes_;
  HopClock clock_;
  HedgeBudget hedges_;
  bool led_ = true;
  std::map<AttemptId, TaskPtr> outgoing_;           // by the attempt they were sent on as
  std::map<AttemptId, Superseded> stale_outgoing_;  // their answers still count
  std::deque<TaskPtr> seeking_;
  std::uint32_t next_attempt_ = 1;
  CallbackGuard guard_;
};

}  // namespace swarmline
