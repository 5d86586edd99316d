#include "pipeline/stage/microbatches/microbatch_flow.h"

#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "base/marks.h"
#include "base/printable.h"

namespace swarmline {

MicrobatchFlow::MicrobatchFlow(StageContext& context, const PhaseBook& phases,
                               Contributions& contributions, std::unique_ptr<Wiring> wiring,
                               std::uint64_t admit_bytes_max,
                               std::function<void()> on_local_finished)
    : context_(context),
      on_local_finished_(std::move(on_local_finished)),
      monitor_(context),
      early_(context.activation_elements(context.config.batch.microbatch),
             context.spec.shape.stream_dtype()),
      traffic_(context, phases),
      admission_(context, phases, monitor_, traffic_, admit_bytes_max,
                 {.on_output = [this](const TaskPtr& task) { forwarder_.send_on(task); },
                  .on_turn = [this](const TaskPtr& task) { returner_.on_turn(task); },
                  .on_end = [this](const TaskPtr& task) { finish(task); },
                  .on_failed = [this](const TaskPtr& task,
                                      const Error& error) { compute_failed(task, error); }}),
      forwarder_(context, phases, traffic_, std::move(wiring),
                 {.on_end = [this](const TaskPtr& task) { finish(task); },
                  .on_failed = [this](const TaskPtr& task,
                                      const Error& error) { compute_failed(task, error); }}),
      returner_(
          context, phases, monitor_, traffic_, contributions,
          {.on_end = [this](const TaskPtr& task) { finish(task); },
           .on_failed = [this](const TaskPtr& task,
                               const Error& error) { compute_failed(task, error); },
           .on_damaged =
               [this](const TaskPtr& task) { forwarder_.resend(task, Forwarder::Why::kBroken); },
           .wait_for_room =
               [this](const TaskPtr& task, std::function<void()> again) {
                 return admission_.wait_for_room(task, std::move(again));
               }}) {}

void MicrobatchFlow::stop() {
  admission_.stop();
  forwarder_.stop();
  returner_.stop();
}

// ---- What peers say -----------------------------------------------------------------------------

Result<void> MicrobatchFlow::on_frame(const Seat& from, const Frame& frame) {
  switch (kind_of(frame)) {
    case MessageKind::kForward:
      return on_forward(from, frame);
    case MessageKind::kForwardDone: {
      auto message = parse<wire::ForwardDone>(frame);
      if (!message) return std::unexpected(message.error());
      return forwarder_.on_forward_done(from, *message);
    }
    case MessageKind::kGradientArrived:
      return on_gradient_arrived(from, frame);
    case MessageKind::kGradient:
      return on_gradient(from, frame);
    case MessageKind::kRefused: {
      auto message = parse<wire::Refused>(frame);
      if (!message) return std::unexpected(message.error());
      forwarder_.on_refused(from, *message);
      return {};
    }
    case MessageKind::kCancel:
      return on_cancel(from, frame);
    case MessageKind::kCredit:
      forwarder_.on_credit(from);
      return {};
    default:
      return fail(ErrorCode::kCorrupt, "a message that peers don't send each other");
  }
}

Result<void> MicrobatchFlow::on_forward(const Seat& from, const Frame& frame) {
  auto message = parse<wire::Forward>(frame);
  if (!message) return std::unexpected(message.error());
  SharedBytes values = decoded_on_arrival(from, from_wire(message->id()), frame);
  return admission_.on_forward(from, *message, frame, std::move(values));
}

Result<void> MicrobatchFlow::on_gradient(const Seat& from, const Frame& frame) {
  auto message = parse<wire::Gradient>(frame);
  if (!message) return std::unexpected(message.error());
  if (from.stage.value != context_.self.stage.value + 1U)
    return fail(ErrorCode::kCorrupt, "a gradient that is not the next stage's");
  const AttemptId id = from_wire(message->id());
  SharedBytes values = decoded_on_arrival(from, id, frame);
  if (message->era() != context_.era.value) return {};
  if (!message->nothing_below()) forwarder_.on_returned(from, frame.received_over);
  const TaskPtr task = forwarder_.on_gradient(from, *message);
  if (!task) return {};
  SWARMLINE_TRY(returner_.check(*task, *message, frame));
  forwarder_.settle(task);
  task->through = from.peer;
  returner_.on_gradient(task, *message, frame, std::move(values));
  if (!message->nothing_below()) forwarder_.retry_seeking();
  return {};
}

Result<void> MicrobatchFlow::on_gradient_arrived(const Seat& from, const Frame& frame) {
  auto message = parse<wire::GradientArrived>(frame);
  if (!message) return std::unexpected(message.error());
  const AttemptId id = from_wire(message->id());
  if (!returner_.on_arrived(from, id)) forwarder_.on_gradient_arrived(from, id);
  return {};
}

Result<void> MicrobatchFlow::on_cancel(const Seat& from, const Frame& frame) {
  auto message = parse<wire::Cancel>(frame);
  if (!message) return std::unexpected(message.error());
  // Whoever cancels has banned this peer; hearing from it ends that.
  context_.links.send(from, make_frame(MessageKind::kCredit, wire::Credit()));
  const TaskPtr task = admission_.find(from_wire(message->id()));
  if (!task || task->upstream.peer != from.peer) return {};
  // Its gradient is being added, or the ledger may have granted that: let it finish.
  if (task->state == TaskState::kBackward || task->state == TaskState::kClaiming ||
      task->state == TaskState::kAdding)
    return {};
  SWARMLINE_MARK("microbatches.cancelled");
  task->cancelled = true;
  if (task->state == TaskState::kDownstream) forwarder_.cancel(task);
  if (task->state != TaskState::kForward || !admission_.is_active(*task)) finish(task);
  return {};
}

SharedBytes MicrobatchFlow::decoded_on_arrival(const Seat& from, const AttemptId& id,
                                               const Frame& frame) {
  SharedBytes values = early_.take(from.peer, id, frame);
  if (!values.empty() && context_.metrics)
    context_.metrics->counter("swarmline_tensors_decoded_on_arrival").add();
  return values;
}

void MicrobatchFlow::on_arriving(const Seat& from, const Arrival& arrival) {
  if (context_.model.takes_wire()) return;
  Frame named;  // the meta alone
  named.meta = std::string(arrival.meta);
  switch (static_cast<MessageKind>(arrival.kind)) {
    case MessageKind::kForward: {
      const auto message = parse<wire::Forward>(named);
      // A full peer will refuse it.
      if (!message || context_.first() || !admission_.has_room(arrival.payload_bytes)) return;
      return early_.on_arriving(from.peer, from_wire(message->id()), arrival);
    }
    case MessageKind::kGradient: {
      const auto message = parse<wire::Gradient>(named);
      if (!message || context_.last() || !forwarder_.expects(from_wire(message->id()))) return;
      return early_.on_arriving(from.peer, from_wire(message->id()), arrival);
    }
    default:
      return;
  }
}

// ---- Ends ---------------------------------------------------------------------------------------

void MicrobatchFlow::compute_failed(const TaskPtr& task, const Error& error) {
  if (error.code == ErrorCode::kDeviceLost) {
    SWARMLINE_MARK("microbatches.device_lost");
    return context_.fail(error);
  }
  SWARMLINE_MARK("microbatches.compute_failed");
  log(LogLevel::kError, "{}: {} failed here: {}", to_string(context_.self),
      to_string(task->id.microbatch), error.what);
  wire::ComputeFailed failed;
  *failed.mutable_seat() = to_wire(context_.self);
  *failed.mutable_id() = to_wire(task->id);
  failed.set_what(printable(error.what, Limits::reason_bytes_max));
  context_.notify_coordinator(make_frame(MessageKind::kComputeFailed, failed));
  if (!task->local()) admission_.refuse(task->upstream, task->id, wire::Refused::BROKEN);
  finish(task);
}

void MicrobatchFlow::finish(const TaskPtr& task) {
  if (task->state == TaskState::kOver) return;
  forwarder_.leave(task);
  task->state = TaskState::kOver;
  task->output = SharedBytes();
  admission_.leave(task);
  if (task->local()) on_local_finished_();
  admission_.go_on_with_room();
  forwarder_.retry_seeking();
  admission_.go_on_in_order();
}

void MicrobatchFlow::drop(const Phase& phase) {
  context_.queue.drop(phase);
  forwarder_.on_over(phase);
  for (const TaskPtr& task : admission_.take_over(phase)) {
    task->cancelled = true;
    finish(task);
  }
  returner_.drop(phase);
}

void MicrobatchFlow::on_link_lost(const Seat& peer) {
  early_.drop(peer.peer);
  forwarder_.on_link_lost(peer);
  admission_.lift_order();
  admission_.go_on_in_order();
}

void MicrobatchFlow::on_peer_lost(const Seat& lost) {
  early_.drop(lost.peer);
  admission_.on_peer_lost(lost);
  returner_.on_peer_lost(lost);
  forwarder_.on_peer_lost(lost, admission_.tasks());
  admission_.lift_order();
  forwarder_.retry_seeking();
  admission_.go_on_in_order();
}

void MicrobatchFlow::take_account(const Phase& phase, wire::Reduced& report) {
  traffic_.take(phase, *report.mutable_boundary());
  monitor_.take(phase, *report.mutable_boundary());
  const BoundaryTraffic::Work work = traffic_.take_work(phase);
  report.set_busy_ns(work.busy_ns);
  report.set_passes(work.passes);
}

void MicrobatchFlow::list_tries(std::set<MicrobatchId>& all) const {
  for (const TaskPtr& task : admission_.tasks()) all.insert(task->id.microbatch);
}

void MicrobatchFlow::check_invariants() const {
  traffic_.check_invariants();
  admission_.check_invariants();
  forwarder_.check_invariants();
  returner_.check_invariants();
}

}  // namespace swarmline
