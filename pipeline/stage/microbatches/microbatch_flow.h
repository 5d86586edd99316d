// Microbatches through one stage: admitted and computed forward (Admission), wired on and waited
// for (Forwarder), computed backward, added and sent back (Returner).
//   What:      hands each message and each event to the part that it concerns, and what one part
//              has done to the next; the parts don't know each other.
//   Ownership: owns the parts; contributions and phases are the stage's.
//   Thread:    control thread.
//   Errors:    frames that do not fit return kCorrupt; the caller disconnects the sender.
//   Bounds:    those of the parts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "pipeline/protocol/message_kinds.h"
#include "pipeline/stage/common/phase_book.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/microbatches/admission.h"
#include "pipeline/stage/microbatches/boundary_traffic.h"
#include "pipeline/stage/microbatches/codec_monitor.h"
#include "pipeline/stage/microbatches/contributions.h"
#include "pipeline/stage/microbatches/early_decode.h"
#include "pipeline/stage/microbatches/forwarder.h"
#include "pipeline/stage/microbatches/microbatch_task.h"
#include "pipeline/stage/microbatches/returner.h"
#include "pipeline/wiring/wiring.h"

namespace swarmline {

class MicrobatchFlow {
 public:
  MicrobatchFlow(StageContext& context, const PhaseBook& phases, Contributions& contributions,
                 std::unique_ptr<Wiring> wiring, std::uint64_t admit_bytes_max,
                 std::function<void()> on_local_finished);
  // Nothing that it waits for comes any more: timers and jobs end unheard.
  void stop();

  // Who may take what goes on, from now on; retry_seeking() follows.
  void set_candidates(const std::vector<NextStage::Candidate>& candidates) {
    forwarder_.set_candidates(candidates);
  }
  void retry_seeking() { forwarder_.retry_seeking(); }
  void set_share(std::uint32_t rank, std::uint32_t members) { admission_.set_share(rank, members); }
  void start_local(const AttemptId& id, PhaseEpoch epoch, std::string mask, std::uint32_t rows,
                   SharedBytes tokens, SharedBytes targets) {
    admission_.start_local(id, epoch, std::move(mask), rows, std::move(tokens), std::move(targets));
  }
  Result<void> on_frame(const Seat& from, const Frame& frame);
  // Some of a large tensor is here: what is complete of it is decoded.
  void on_arriving(const Seat& from, const Arrival& arrival);
  void on_link_replaced(const Seat& from) { early_.drop(from.peer); }
  void on_link_news(const Seat& peer, LinkNews news) { forwarder_.on_link_news(peer, news); }
  // Whether there is a coordinator that has all its peers.
  void set_led(bool led) { forwarder_.set_led(led, admission_.tasks()); }
  // The coordinator passes on that `stalled` sits on a microbatch of ours.
  void on_stall(const Seat& stalled, const AttemptId& id) { forwarder_.on_stall(stalled, id); }
  // Nothing sent over that link can be counted on: what waits for an answer goes elsewhere.
  void on_link_lost(const Seat& peer);
  // The seat is over: what it had goes elsewhere at once, what it sent is nobody's any more.
  void on_peer_lost(const Seat& lost);
  void on_active(const Phase& phase) { admission_.on_active(phase); }
  // Drops what is over of the phase; nothing of that is computed any more (jobs on the device are
  // ignored when they end). What was leased in an epoch still to come stays.
  void drop(const Phase& phase);
  // Ends the phase's account: what its tensors cost, and the device time.
  void take_account(const Phase& phase, wire::Reduced& report);

  bool knows(const AttemptId& id) const { return admission_.find(id) != nullptr; }
  std::uint32_t in_flight() const { return admission_.in_flight(); }
  void list_tries(std::set<MicrobatchId>& all) const;
  void check_invariants() const;

 private:
  Result<void> on_forward(const Seat& from, const Frame& frame);
  Result<void> on_gradient(const Seat& from, const Frame& frame);
  Result<void> on_gradient_arrived(const Seat& from, const Frame& frame);
  Result<void> on_cancel(const Seat& from, const Frame& frame);
  void finish(const TaskPtr& task);
  void compute_failed(const TaskPtr& task, const Error& error);
  SharedBytes decoded_on_arrival(const Seat& from, const AttemptId& id, const Frame& frame);

  StageContext& context_;
  std::function<void()> on_local_finished_;
  CodecMonitor monitor_;
  EarlyDecode early_;
  BoundaryTraffic traffic_;
  Admission admission_;
  Forwarder forwarder_;
  Returner returner_;
};

}  // namespace swarmline
