// The way back: the gradient arrives, the ledger is asked where it must be, the weights' share is
// added, the gradient of the input goes upstream.

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "pipeline/stage/microbatches/microbatch_flow.h"
#include "pipeline/stage/microbatches/stage_compute.h"

namespace swarmline {

Result<void> MicrobatchFlow::on_gradient(const Seat& from, Frame frame) {
  auto message = parse<wire::Gradient>(frame);
  if (!message) return std::unexpected(message.error());
  const AttemptId id = from_wire(message->id());
  SharedBytes values = decoded_on_arrival(from, id, frame);
  if (message->era() != context_.era.value) return {};
  wire::GradientArrived arrived;
  *arrived.mutable_id() = message->id();
  send_next(from, id.microbatch.phase, make_frame(MessageKind::kGradientArrived, arrived));
  wiring_.on_backward_done(from.peer, Duration(static_cast<std::int64_t>(message->service_ns())));
  clock_.end(id, from.peer, context_.runtime.now());
  const TaskPtr task = outgoing(id, from);
  if (!task || (task->state != TaskState::kDownstream && task->state != TaskState::kSeeking))
    return {};
  if (message->nothing_below()) {
    // Only stages beyond wanted this try, and they have what they need.
    if (mask_has(task->mask, context_.self.stage) ||
        !mask_empty_below(task->mask, context_.self.stage))
      return fail(ErrorCode::kCorrupt, "a gradient is held back that this stage needs");
    settle_hop(task);
    nothing_below(task);
    return {};
  }
  auto header = read_wire_header(frame.received_payload());
  if (!header) return std::unexpected(header.error());
  if (header->elements != context_.activation_elements(task->rows))
    return fail(ErrorCode::kCorrupt, "a gradient of another shape than this stage's output");
  settle_hop(task);
  monitor_.on_arrival(CodecMonitor::Way::kBackward, id.microbatch.phase, frame);
  task->gradient = frame.payload.front();
  task->gradient_values = std::move(values);
  if (!task->local()) {
    wire::GradientArrived started;
    *started.mutable_id() = to_wire(task->id);
    reply(*task, make_frame(MessageKind::kGradientArrived, started));
  }
  got_gradient(task);
  retry_seeking();
  return {};
}

// Ends a try that no stage below needs; whoever sent it kept it until now.
void MicrobatchFlow::nothing_below(const TaskPtr& task) {
  if (!task->local() && !task->orphan && !task->cancelled) {
    wire::Gradient gradient;
    *gradient.mutable_id() = to_wire(task->id);
    gradient.set_era(context_.era.value);
    gradient.set_nothing_below(true);
    reply(*task, make_frame(MessageKind::kGradient, gradient));
  }
  finish(task);
}

void MicrobatchFlow::release_claim(const AttemptId& id) {
  wire::ReleaseClaim release;
  *release.mutable_seat() = to_wire(context_.self);
  *release.mutable_id() = to_wire(id);
  context_.notify_coordinator(make_frame(MessageKind::kReleaseClaim, release));
}

void MicrobatchFlow::got_gradient(const TaskPtr& task) {
  const bool wanted = mask_has(task->mask, context_.self.stage);
  if (!wanted || !contributions_.reserve(task->id)) return queue_backward(task, false);
  if (task->id.attempt.value == 0) return queue_backward(task, true);
  task->state = TaskState::kClaiming;
  ask_claim(task);
}

void MicrobatchFlow::ask_claim(const TaskPtr& task) {
  wire::Claim claim;
  *claim.mutable_seat() = to_wire(context_.self);
  *claim.mutable_id() = to_wire(task->id);
  std::weak_ptr<MicrobatchFlow*> weak = alive_;
  context_.call_coordinator(
      make_frame(MessageKind::kClaim, claim), [weak, task](Result<Frame> answer) {
        auto self = weak.lock();
        if (!self) return;
        if (task->state != TaskState::kClaiming) {  // its phase was sealed meanwhile
          const auto late = answer ? parse<wire::ClaimReply>(*answer) : Result<wire::ClaimReply>();
          if (!answer || !late || late->granted()) (*self)->release_claim(task->id);
          return;
        }
        // It may have been granted without our knowing, and a claim that nobody uses blocks the
        // step: ask until we know.
        if (!answer && answer.error().code == ErrorCode::kDeadline) return (*self)->ask_claim(task);
        auto parsed = answer ? parse<wire::ClaimReply>(*answer) : Result<wire::ClaimReply>();
        const bool granted = answer && parsed && parsed->granted();
        if (!granted) (*self)->contributions_.unreserve(task->id);
        (*self)->queue_backward(task, granted);
      });
}

void MicrobatchFlow::queue_backward(const TaskPtr& task, bool weight_gradients) {
  const bool input_gradient =
      !context_.first() && !task->orphan && !mask_empty_below(task->mask, context_.self.stage);
  if (!weight_gradients && !input_gradient) return nothing_below(task);
  task->state = TaskState::kBackward;
  auto result = std::make_shared<BackwardResult>();
  StageJob job;
  job.job_class = JobClass::kBackward;
  job.phase = task->id.microbatch.phase;
  job.job.kind = JobKind::kBackward;
  job.job.body = backward_body(context_, task, {weight_gradients, input_gradient},
                               monitor_.plan(CodecMonitor::Way::kBackward, *task), result);
  job.done = guarded([this, task, weight_gradients, result](JobReport report) {
    after_backward(task, weight_gradients, report, *result);
  });
  context_.queue.submit(std::move(job));
}

void MicrobatchFlow::after_backward(const TaskPtr& task, bool added, const JobReport& report,
                                    const BackwardResult& result) {
  const Phase phase = task->id.microbatch.phase;
  busy_ns_[phase] += static_cast<std::uint64_t>(report.service.count());
  if (!report.result) {
    const Error& error = report.result.error();
    // Half of the contribution may be in the sums, and no one can tell which half.
    if (added && error.code == ErrorCode::kDevice)
      return context_.fail(
          {error.code, fmt::format("the backward of {} failed, which spoils this peer's sums: {}",
                                   to_string(task->id.microbatch), error.what)});
    if (added) contributions_.unreserve(task->id);
    if (error.code == ErrorCode::kCorrupt && !context_.last())
      return gradient_damaged(task, added && task->id.attempt.value != 0, error);
    return compute_failed(task, error);
  }
  task->has_graph = false;
  task->gradient_values = SharedBytes();
  task->output = SharedBytes();
  if (added) contributions_.added(task);
  monitor_.on_sample(CodecMonitor::Way::kBackward, phase, result.sample);
  const bool over = phases_.status(phase) == PhaseStatus::kOver;
  if (!task->local() && !task->orphan && !task->cancelled && !over) {
    if (result.wire.empty()) return nothing_below(task);
    wire::Gradient gradient;
    *gradient.mutable_id() = to_wire(task->id);
    gradient.set_era(context_.era.value);
    gradient.set_service_ns(static_cast<std::uint64_t>(report.service.count()));
    gradient.set_non_finite(!result.finite);
    Frame frame = make_frame(MessageKind::kGradient, gradient, {result.wire});
    reply(*task, std::move(frame));
    arm_arrival_timer(task);
  }
  finish(task);
}

// Its sender has forgotten the microbatch: the next stage is asked once more.
void MicrobatchFlow::gradient_damaged(const TaskPtr& task, bool claimed, const Error& error) {
  note_damage(MessageKind::kGradient, task->next, error);
  if (claimed) release_claim(task->id);
  if (task->cancelled || phases_.status(task->id.microbatch.phase) == PhaseStatus::kOver)
    return finish(task);
  task->gradient = SharedBytes();
  task->gradient_values = SharedBytes();
  task->state = TaskState::kDownstream;
  resend(task, Why::kBroken);
}

// A frozen upstream can't start its own timer, and its upstream hears nothing: the one that waits
// for its word says so.
void MicrobatchFlow::arm_arrival_timer(const TaskPtr& task) {
  awaiting_arrival_[task->id] = task;
  std::weak_ptr<MicrobatchFlow*> weak = alive_;
  task->arrival_timer = context_.runtime.call_after(
      from_seconds(context_.config.wiring.hop_timeout_seconds), [weak, task] {
        auto self = weak.lock();
        if (!self || (*self)->awaiting_arrival_.erase(task->id) == 0) return;
        wire::StallReport stall;
        *stall.mutable_seat() = to_wire((*self)->context_.self);
        *stall.mutable_stalled() = to_wire(task->upstream);
        *stall.mutable_id() = to_wire(task->id);
        (*self)->context_.notify_coordinator(make_frame(MessageKind::kStallReport, stall));
      });
}

}  // namespace swarmline
