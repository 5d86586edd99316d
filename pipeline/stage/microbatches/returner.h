// The way back: the gradient of a task's output is here, the ledger is asked where it must be, the
// weights' share is added, and the gradient of the input goes upstream.
//   Claims:    attempt 0 adds first and reports after; any other attempt asks the ledger before it
//              adds, until it knows: a claim that nobody uses blocks the step.
//   Order:     the gradient of the input, for which others wait, is computed and sent first; weight
//              gradients are added when the device has nothing else to do, or enough of them wait
//              (kAddingMax; at the first stage, which has nothing else, all that its leases allow).
//              Only then the contribution is reported.
//   Damage:    a gradient that does not decode is asked again: the output is kept until then.
//   Losses:    a try whose upstream is lost is computed to its end where it adds, and sends nothing
//              back.
//   Ownership: owns which gradients wait for the upstream's word; says what was added to
//              Contributions. Of a task it alone writes `gradient` to `arrival_timer`.
//   Thread:    control thread; the backward is a device job.
//   Errors:    check() says kCorrupt of a gradient that does not fit. A job of a try that adds and
//              fails ends the peer: nobody knows which half is in the sums. A backward for which
//              the device has no room has added nothing: it waits until there is.
//   Bounds:    one entry per task; a hop timeout each.
//   Source:    weight gradients that fill the drain: Qi et al., Zero Bubble Pipeline Parallelism,
//              ICLR 2024.
#pragma once

#include <functional>
#include <map>
#include <set>

#include "base/callback_guard.h"
#include "pipeline/stage/common/phase_book.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/microbatches/boundary_traffic.h"
#include "pipeline/stage/microbatches/codec_monitor.h"
#include "pipeline/stage/microbatches/contributions.h"
#include "pipeline/stage/microbatches/microbatch_task.h"

namespace swarmline {

class Returner {
 public:
  struct Hooks {
    std::function<void(const TaskPtr&)> on_end;
    std::function<void(const TaskPtr&, const Error&)> on_failed;
    std::function<void(const TaskPtr&)> on_damaged;  // its next hop is to compute it once more
    // The device had no room: Admission::wait_for_room().
    std::function<bool(const TaskPtr&, std::function<void()> again)> wait_for_room;
  };

  Returner(StageContext& context, const PhaseBook& phases, CodecMonitor& monitor,
           BoundaryTraffic& traffic, Contributions& contributions, Hooks hooks);
  ~Returner();

  Result<void> check(const MicrobatchTask& task, const wire::Gradient& message,
                     const Frame& frame) const;
  // `values`: the tensor, where it was decoded on arrival. Checked, and its hop is settled.
  void on_gradient(const TaskPtr& task, const wire::Gradient& message, const Frame& frame,
                   SharedBytes values);
  // At the last stage: its loss is known.
  void on_turn(const TaskPtr& task);
  // The upstream has that gradient; false: it is none that we sent there.
  bool on_arrived(const Seat& from, const AttemptId& id);
  void on_peer_lost(const Seat& lost);
  void drop(const Phase& phase);
  void stop() { guard_.drop_callbacks(); }
  void check_invariants() const;

 private:
  void begin(const TaskPtr& task);
  void ask_claim(const TaskPtr& task);
  void on_claim_answer(const TaskPtr& task, const Result<Frame>& answer);
  void release_claim(const AttemptId& id);
  void queue_backward(const TaskPtr& task, bool weight_gradients);
  void after_backward(const TaskPtr& task, const struct BackwardPlan& plan, const JobReport& report,
                      const struct BackwardResult& result);
  void send_gradient(const TaskPtr& task, const struct BackwardPlan& plan, const JobReport& report,
                     const struct BackwardResult& result);
  void queue_adding(const TaskPtr& task);
  void after_adding(const TaskPtr& task, const JobReport& report);
  void backward_failed(const TaskPtr& task, const struct BackwardPlan& plan, const Error& error);
  void adding_failed(const MicrobatchTask& task, const Error& error);
  void gradient_damaged(const TaskPtr& task, bool claimed, const Error& error);
  void nothing_below(const TaskPtr& task);
  void reply(const MicrobatchTask& task, Frame frame);
  void arm_arrival_timer(const TaskPtr& task);

  StageContext& context_;
  const PhaseBook& phases_;
  CodecMonitor& monitor_;
  BoundaryTraffic& traffic_;
  Contributions& contributions_;
  Hooks hooks_;
  // The first stage's backward is weight gradients alone; but not in a fixed order.
  const bool nobody_waits_;
  // The input gradient first: not in a fixed order, which says when a backward ends; and not where
  // the graph is computed again, since what the other half needs would be kept in its place.
  const bool splits_;
  std::map<AttemptId, TaskPtr> awaiting_arrival_;  // gradient sent up; its end has yet to say so
  std::set<AttemptId> adding_;                     // their jobs wait or are on the device
  Duration adding_took_{};                         // the newest of them; zero: there was none
  CallbackGuard guard_;
};

}  // namespace swarmline
