// Microbatches through one stage: admit, compute forward, wire on, wait for the gradient, compute
// backward, send it back.
//
//   Admission: by bytes, reserving room for the gradient with the forward. A full peer refuses
//              forwards (the sender picks again and waits for a credit); gradients, cancels and
//              control are never refused.
//   Hops:      a sender's timer covers one hop's work: sent -> forward done, and gradient arrived
//              there -> gradient here. A timeout is charged to the peer that stalled and the bytes
//              go to another one under a new attempt; the old attempt is cancelled. Late answers of
//              either attempt are the same numbers: the first one is used.
//   Early:     a leg that takes far longer than that peer's do (HopClock) gets its microbatch one
//              second try, at another peer that has room at once. That is no proof of a stall:
//              nobody is told, and it is no failed attempt. The peer is banned until it is heard
//              from, which an answer to the cancel does. Counted in swarmline_early_second_tries.
//              Fixed routes stay as they are.
//   Losses:    what was sent to a lost seat goes to another at once; a try whose upstream is lost
//              is computed to its end where it adds, and sends nothing back.
//   Damage:    a tensor whose checksum fails is nobody's failure to compute: it is refused and
//              sent again. So the output is kept until its gradient has been decoded.
//   Claims:    attempt 0 adds first and reports after; any other attempt asks the ledger before it
//              adds.
//   Thread:    control thread.
//   Errors:    frames that do not fit return kCorrupt; the caller disconnects the sender.
//   Bounds:    [net] admit_bytes; Limits::attempts_per_microbatch_max sends per task.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "pipeline/protocol/message_kinds.h"
#include "pipeline/stage/common/phase_book.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/microbatches/codec_monitor.h"
#include "pipeline/stage/microbatches/contributions.h"
#include "pipeline/stage/microbatches/early_decode.h"
#include "pipeline/stage/microbatches/hop_clock.h"
#include "pipeline/stage/microbatches/microbatch_order.h"
#include "pipeline/stage/microbatches/microbatch_task.h"
#include "pipeline/wiring/wiring.h"

namespace swarmline {

class MicrobatchFlow {
 public:
  MicrobatchFlow(StageContext& context, PhaseBook& phases, Contributions& contributions,
                 Wiring& wiring, std::uint64_t admit_bytes_max,
                 std::function<void()> on_local_finished);
  ~MicrobatchFlow();
  // Nothing that it waits for comes any more: timers and jobs end unheard.
  void stop() { alive_.reset(); }

  // Candidates of the next stage: seats the wiring may name.
  void set_next_seats(std::vector<Seat> seats);
  // This peer's place among the members of its stage, by id.
  void set_share(std::uint32_t rank, std::uint32_t members);
  // A microbatch that starts here (stage 0), leased in that epoch of its phase. Tokens and
  // targets: (rows, sequence) int32. The attempt must be unknown (knows()).
  void start_local(const AttemptId& id, PhaseEpoch epoch, std::string mask, std::uint32_t rows,
                   SharedBytes tokens, SharedBytes targets);
  Result<void> on_frame(const Seat& from, Frame frame);
  // Some of a large tensor is here: what is complete of it is decoded.
  void on_arriving(const Seat& from, const Arrival& arrival);
  // Whether there is a coordinator that has all its peers.
  void set_led(bool led);
  // The coordinator passes on that `stalled` sits on a microbatch of ours.
  void on_stall(const Seat& stalled, const AttemptId& id);
  // Nothing sent over that link can be counted on: what waits for an answer goes elsewhere.
  void on_link_lost(const Seat& peer);
  // The seat is over: what it had goes elsewhere at once, what it sent is nobody's any more.
  void on_peer_lost(const Seat& lost);
  // The phase can be computed now: what was held goes on.
  void on_active(const Phase& phase);
  // Drops what is over of the phase; nothing of that is computed any more (jobs on the device are
  // ignored when they end). What was leased in an epoch still to come stays.
  void drop(const Phase& phase);
  // Recomputes a contribution and subtracts it; for Contributions.
  void subtract(const TaskPtr& task, std::function<void()> done);

  bool knows(const AttemptId& id) const { return tasks_.contains(id); }
  std::uint32_t in_flight() const { return static_cast<std::uint32_t>(tasks_.size()); }
  std::uint32_t local_in_flight() const { return local_in_flight_; }
  std::uint64_t admitted_bytes() const { return admitted_bytes_; }
  wire::BoundaryBytes take_boundary_bytes(const Phase& phase);
  std::uint64_t take_busy_ns(const Phase& phase);

 private:
  struct Superseded {  // a way on that was given up
    TaskPtr task;
    PeerId sent_to;
  };

  Result<void> on_forward(const Seat& from, const Frame& frame);
  Result<void> on_forward_done(const Seat& from, const Frame& frame);
  Result<void> on_gradient_arrived(const Seat& from, const Frame& frame);
  Result<void> on_gradient(const Seat& from, Frame frame);
  Result<void> on_refused(const Seat& from, const Frame& frame);
  Result<void> on_cancel(const Seat& from, const Frame& frame);

  SharedBytes decoded_on_arrival(const Seat& from, const AttemptId& id, const Frame& frame);
  void admit(const TaskPtr& task);
  PhaseStatus status(const MicrobatchTask& task) const;
  void queue_or_hold(const TaskPtr& task);
  bool has_room(std::uint64_t bytes) const;
  void queue_forward(const TaskPtr& task);
  void compute_forward(const TaskPtr& task);
  void go_on_in_order();
  void after_forward(const TaskPtr& task, const JobReport& report,
                     const struct ForwardResult& result);
  void forward_done(const MicrobatchTask& task, const JobReport& report);
  std::optional<Seat> pick_next(const MicrobatchId& microbatch, const std::vector<PeerId>& exclude,
                                bool late);
  void send_on(const TaskPtr& task);
  void send_to(const TaskPtr& task, const Seat& next);
  enum class Why : std::uint8_t { kStalled, kBroken, kLinkLost, kPeerLost };
  void resend(const TaskPtr& task, Why why);
  bool tried_all(const MicrobatchTask& task) const;
  void try_all_again_later(const TaskPtr& task);
  void retry_seeking_after(Duration pause);
  void supersede(const TaskPtr& task);
  void cancel_next(const Seat& next, const AttemptId& id);
  void settle_hop(const TaskPtr& task);
  void begin_leg(const TaskPtr& task, HopClock::Leg leg);
  void arm_hop_timer(const TaskPtr& task);
  void on_hop_timer(const TaskPtr& task, Instant due);
  bool may_be_passed_by(const MicrobatchTask& task) const;
  bool pass_by(const TaskPtr& task);
  void arm_arrival_timer(const TaskPtr& task);
  void got_gradient(const TaskPtr& task);
  void ask_claim(const TaskPtr& task);
  void queue_backward(const TaskPtr& task, bool weight_gradients);
  void after_backward(const TaskPtr& task, bool added, const JobReport& report,
                      const struct BackwardResult& result);
  void compute_failed(const TaskPtr& task, const Error& error);
  void input_damaged(const TaskPtr& task, const Error& error);
  void gradient_damaged(const TaskPtr& task, bool claimed, const Error& error);
  void note_damage(MessageKind kind, const Seat& from, const Error& error);
  void finish(const TaskPtr& task);
  void release_graph(const TaskPtr& task);
  bool counts(const Phase& phase) const;
  void nothing_below(const TaskPtr& task);
  void release_claim(const AttemptId& id);
  void send_next(const Seat& to, const Phase& phase, Frame frame, std::uint64_t tokens = 0);
  void send_back(const Seat& to, const Phase& phase, Frame frame);
  void reply(const MicrobatchTask& task, Frame frame);
  void refuse(const Seat& to, const AttemptId& id, wire::Refused::Why why);
  void offer_credit();
  void retry_seeking();
  TaskPtr outgoing(const AttemptId& id, const Seat& from);
  Attempt new_attempt();
  std::function<void(JobReport)> guarded(std::function<void(JobReport)> done);

  StageContext& context_;
  PhaseBook& phases_;
  Contributions& contributions_;
  Wiring& wiring_;
  std::uint64_t admit_bytes_max_;
  CodecMonitor monitor_;
  EarlyDecode early_;
  MicrobatchOrder order_;
  bool free_routes_;
  HopClock clock_;
  std::function<void()> on_local_finished_;
  bool led_ = true;

  std::map<PeerId, Seat> next_seats_;
  std::map<AttemptId, TaskPtr> tasks_;              // by the attempt they arrived as
  std::map<AttemptId, TaskPtr> outgoing_;           // by the attempt they were sent on as
  std::map<AttemptId, Superseded> stale_outgoing_;  // their answers still count
  std::map<AttemptId, TaskPtr>
      awaiting_arrival_;  // gradient sent up; waiting for the upstream's word
  std::map<Phase, std::vector<TaskPtr>> held_;
  std::deque<TaskPtr> seeking_;
  std::map<PeerId, Seat> refused_full_;  // wait for our credit
  std::uint64_t admitted_bytes_ = 0;
  std::uint32_t local_in_flight_ = 0;
  std::uint32_t next_attempt_ = 1;
  std::map<Phase, wire::BoundaryBytes> boundary_;
  std::map<Phase, std::uint64_t> busy_ns_;
  std::shared_ptr<MicrobatchFlow*> alive_;
};

}  // namespace swarmline
