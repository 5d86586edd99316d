// The way in: takes microbatches as far as there is room, keeps them until their phase is open and
// their turn has come, and computes them forward.
//   Admission: by bytes, reserving room for the gradient with the forward. A full peer refuses a
//              forward (its sender picks again and waits for a credit); an empty one takes
//              anything. What the source starts here is bounded by its leases.
//   Slowness:  a peer that has become slow takes fewer (Slowdown), and refuses what it has too much
//              of and did not begin, where senders may pick.
//   Epochs:    a forward of an epoch that is sealed is refused; one of an epoch that this peer has
//              not heard of is held until it has.
//   Memory:    a device that has no room for one more is full: what it keeps then is all that is
//              admitted from there on. What can't be handed back waits until another one ends.
//   Damage:    an activation that does not decode is refused and sent again; nobody failed.
//   Ownership: owns who is in this stage: every task from its admission to leave().
//   Thread:    control thread; the forward is a device job.
//   Errors:    frames that do not fit return kCorrupt; the caller disconnects their sender.
//   Bounds:    [net] admit_bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/callback_guard.h"
#include "pipeline/stage/common/phase_book.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/microbatches/admit_room.h"
#include "pipeline/stage/microbatches/boundary_traffic.h"
#include "pipeline/stage/microbatches/codec_monitor.h"
#include "pipeline/stage/microbatches/microbatch_schedule.h"
#include "pipeline/stage/microbatches/microbatch_task.h"

namespace swarmline {

class Admission {
 public:
  struct Hooks {
    std::function<void(const TaskPtr&)> on_output;  // computed, and a stage follows
    std::function<void(const TaskPtr&)> on_turn;    // computed at the last stage, and its turn
    std::function<void(const TaskPtr&)> on_end;     // nothing more is to be done for it
    std::function<void(const TaskPtr&, const Error&)> on_failed;
  };

  Admission(StageContext& context, const PhaseBook& phases, CodecMonitor& monitor,
            BoundaryTraffic& traffic, std::uint64_t admit_bytes_max, Hooks hooks);

  // A microbatch that starts here (stage 0), leased in that epoch of its phase. Tokens and targets:
  // (rows, sequence) int32. The attempt must be unknown (find()).
  void start_local(const AttemptId& id, PhaseEpoch epoch, std::string mask, std::uint32_t rows,
                   SharedBytes tokens, SharedBytes targets);
  // `values`: the tensor, where it was decoded on arrival.
  Result<void> on_forward(const Seat& from, const wire::Forward& message, const Frame& frame,
                          SharedBytes values);
  // The phase can be computed now: what was held goes on.
  void on_active(const Phase& phase);
  // This peer's place among the members of its stage, by id.
  void set_share(std::uint32_t rank, std::uint32_t members);
  // Members or links changed: the order no longer holds anything back in this step.
  void lift_order();
  void go_on_in_order();

  // The device had no room for that task's job: `again` is called when another one has left. False:
  // there is none whose end would make room.
  bool wait_for_room(const TaskPtr& task, std::function<void()> again);
  // The task has ended: its room is free, and whoever was refused for want of it hears so.
  void leave(const TaskPtr& task);
  void go_on_with_room();
  // Forgets what is held of that phase and over, and says which tasks are to end.
  std::vector<TaskPtr> take_over(const Phase& phase);
  // What that seat sent is nobody's any more.
  void on_peer_lost(const Seat& lost);
  void refuse(const Seat& to, const AttemptId& id, wire::Refused::Why why);
  void stop() { guard_.drop_callbacks(); }

  TaskPtr find(const AttemptId& id) const;  // null: unknown
  bool is_active(const MicrobatchTask& task) const;
  bool has_room(std::uint64_t bytes) const;
  std::vector<TaskPtr> tasks() const;  // by the attempt they arrived as
  std::uint32_t in_flight() const { return static_cast<std::uint32_t>(tasks_.size()); }
  std::uint64_t admitted_bytes() const { return admitted_bytes_; }
  void check_invariants() const;

 private:
  Result<void> check_forward(const Seat& from, const AttemptId& id, const wire::Forward& message,
                             const Frame& frame) const;
  void admit(const TaskPtr& task);
  std::uint64_t under_way() const;
  std::uint64_t may_have() const;
  void hand_back();
  PhaseStatus status(const MicrobatchTask& task) const;
  void queue_or_hold(const TaskPtr& task);
  void queue_forward(const TaskPtr& task);
  void compute_forward(const TaskPtr& task);
  void after_forward(const TaskPtr& task, const JobReport& report,
                     const struct ForwardResult& result);
  void say_forward_done(const MicrobatchTask& task, const JobReport& report);
  void input_damaged(const TaskPtr& task, const Error& error);
  void device_full(const TaskPtr& task, const Error& error);
  bool others_make_room(const TaskPtr& task);
  void release_graph(const TaskPtr& task);
  void offer_credit();

  StageContext& context_;
  const PhaseBook& phases_;
  CodecMonitor& monitor_;
  BoundaryTraffic& traffic_;
  AdmitRoom room_;
  std::uint64_t largest_bytes_ = 0;  // of the microbatches of the steps under way
  std::size_t graphs_max_ = std::numeric_limits<std::size_t>::max();  // as the device has shown
  Hooks hooks_;
  MicrobatchSchedule order_;
  std::map<AttemptId, TaskPtr> tasks_;  // by the attempt they arrived as
  std::map<Phase, std::vector<TaskPtr>> held_;
  std::map<PeerId, Seat> refused_full_;  // wait for our credit
  std::map<AttemptId, std::pair<TaskPtr, std::function<void()>>> wait_for_room_;
  std::uint64_t admitted_bytes_ = 0;
  double usually_in_flight_ = 0;  // while it is not slow
  CallbackGuard guard_;
};

}  // namespace swarmline
