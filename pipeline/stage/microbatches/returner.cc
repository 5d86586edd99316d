#include "pipeline/stage/microbatches/returner.h"

#include <utility>

#include "base/check.h"
#include "base/marks.h"
#include "pipeline/stage/microbatches/stage_compute.h"

namespace swarmline {

Returner::Returner(StageContext& context, const PhaseBook& phases, CodecMonitor& monitor,
                   BoundaryTraffic& traffic, Contributions& contributions, Hooks hooks)
    : context_(context),
      phases_(phases),
      monitor_(monitor),
      traffic_(traffic),
      contributions_(contributions),
      hooks_(std::move(hooks)),
      nobody_waits_(context.config.pipeline.order == OrderKind::kFree && context.first()),
      splits_(context.config.pipeline.order == OrderKind::kFree && !context.recompute &&
              !context.first()) {}

Returner::~Returner() {
  for (auto& [id, task] : awaiting_arrival_) context_.runtime.cancel(task->arrival_timer);
}

// ---- The gradient is here -----------------------------------------------------------------------

Result<void> Returner::check(const MicrobatchTask& task, const wire::Gradient& message,
                             const Frame& frame) const {
  if (message.nothing_below()) {
    // Only stages beyond wanted this try, and they have what they need.
    if (mask_has(task.mask, context_.self.stage) ||
        !mask_empty_below(task.mask, context_.self.stage))
      return fail(ErrorCode::kCorrupt, "a gradient is held back that this stage needs");
    return {};
  }
  auto header = read_wire_header(frame.received_payload());
  if (!header) return std::unexpected(header.error());
  if (header->elements != context_.activation_elements(task.rows))
    return fail(ErrorCode::kCorrupt, "a gradient of another shape than this stage's output");
  return {};
}

void Returner::on_gradient(const TaskPtr& task, const wire::Gradient& message, const Frame& frame,
                           SharedBytes values) {
  if (message.nothing_below()) return nothing_below(task);
  monitor_.on_arrival(CodecMonitor::Way::kBackward, task->id.microbatch.phase, frame);
  task->gradient = frame.payload.front();
  task->gradient_values = std::move(values);
  if (!task->local()) {
    wire::GradientArrived started;
    *started.mutable_id() = to_wire(task->id);
    reply(*task, make_frame(MessageKind::kGradientArrived, started));
  }
  begin(task);
}

void Returner::on_turn(const TaskPtr& task) {
  if (task->train()) return begin(task);
  contributions_.evaluated(task);
  hooks_.on_end(task);
}

void Returner::begin(const TaskPtr& task) {
  const bool wanted = mask_has(task->mask, context_.self.stage);
  if (!wanted || !contributions_.reserve(task->id)) return queue_backward(task, false);
  if (task->id.attempt.value == 0) return queue_backward(task, true);
  task->state = TaskState::kClaiming;
  ask_claim(task);
}

// ---- Claims -------------------------------------------------------------------------------------

void Returner::ask_claim(const TaskPtr& task) {
  wire::Claim claim;
  *claim.mutable_seat() = to_wire(context_.self);
  *claim.mutable_id() = to_wire(task->id);
  context_.call_coordinator(
      make_frame(MessageKind::kClaim, claim),
      guard_.wrap([this, task](const Result<Frame>& answer) { on_claim_answer(task, answer); }));
}

void Returner::on_claim_answer(const TaskPtr& task, const Result<Frame>& answer) {
  const auto reply = answer ? parse<wire::ClaimReply>(*answer) : Result<wire::ClaimReply>();
  if (task->state != TaskState::kClaiming) {  // its phase was sealed meanwhile
    SWARMLINE_MARK("returner.claim_answered_too_late");
    if (!answer || !reply || reply->granted()) release_claim(task->id);
    return;
  }
  // It may have been granted without our knowing.
  if (!answer && answer.error().code == ErrorCode::kDeadline) {
    SWARMLINE_MARK("returner.claim_asked_again");
    return ask_claim(task);
  }
  const bool granted = answer && reply && reply->granted();
  if (!granted) {
    SWARMLINE_MARK("returner.claim_refused");
    contributions_.unreserve(task->id);
  }
  queue_backward(task, granted);
}

void Returner::release_claim(const AttemptId& id) {
  wire::ReleaseClaim release;
  *release.mutable_seat() = to_wire(context_.self);
  *release.mutable_id() = to_wire(id);
  context_.notify_coordinator(make_frame(MessageKind::kReleaseClaim, release));
}

// ---- Backward -----------------------------------------------------------------------------------

void Returner::queue_backward(const TaskPtr& task, bool weight_gradients) {
  const bool input_gradient =
      !context_.first() && !task->orphan && !mask_empty_below(task->mask, context_.self.stage);
  if (!weight_gradients && !input_gradient) return nothing_below(task);
  const BackwardPlan plan{.weight_gradients = weight_gradients,
                          .input_gradient = input_gradient,
                          .add_later = weight_gradients && input_gradient && splits_};
  task->state = TaskState::kBackward;
  auto result = std::make_shared<BackwardResult>();
  StageJob job;
  job.job_class = nobody_waits_ ? JobClass::kWeightGradients : JobClass::kBackward;
  job.phase = task->id.microbatch.phase;
  const bool adds = weight_gradients && !plan.add_later;
  job.job.kind = adds ? JobKind::kBackward : JobKind::kInputGradient;
  set_backward(job.job, context_, task, plan, monitor_.plan(CodecMonitor::Way::kBackward, *task),
               result);
  job.done = guard_.wrap([this, task, plan, result](const JobReport& report) {
    after_backward(task, plan, report, *result);
  });
  context_.queue.submit(std::move(job));
}

void Returner::after_backward(const TaskPtr& task, const BackwardPlan& plan,
                              const JobReport& report, const BackwardResult& result) {
  const Phase phase = task->id.microbatch.phase;
  const bool adds = plan.weight_gradients && !plan.add_later;
  traffic_.computed(phase, report.service, adds ? 2 : 1);
  if (!report.result) return backward_failed(task, plan, report.result.error());
  if (!plan.add_later) task->has_graph = false;
  task->gradient_values = SharedBytes();
  task->output = SharedBytes();
  if (adds) contributions_.added(task);
  monitor_.on_sample(CodecMonitor::Way::kBackward, phase, result.sample);
  const bool over = phases_.status(phase) == PhaseStatus::kOver;
  if (!task->local() && !task->orphan && !task->cancelled && !over) {
    if (result.wire.empty()) return nothing_below(task);
    send_gradient(task, plan, report, result);
  }
  if (!plan.add_later) return hooks_.on_end(task);
  // Dropped meanwhile: what the model keeps is released, and was never in the sums.
  if (task->state != TaskState::kOver) queue_adding(task);
}

void Returner::send_gradient(const TaskPtr& task, const BackwardPlan& plan, const JobReport& report,
                             const BackwardResult& result) {
  // What is added later takes this device's time, too.
  Duration service = report.service;
  if (plan.add_later) service += adding_took_ > Duration::zero() ? adding_took_ : report.service;
  wire::Gradient gradient;
  *gradient.mutable_id() = to_wire(task->id);
  gradient.set_era(context_.era.value);
  gradient.set_service_ns(static_cast<std::uint64_t>(service.count()));
  gradient.set_non_finite(!result.finite);
  gradient.set_stepped(phases_.stepped().value);
  gradient.set_waiting_ns(static_cast<std::uint64_t>(context_.queue.backlog().count()));
  reply(*task, make_frame(MessageKind::kGradient, gradient, {result.wire}));
  arm_arrival_timer(task);
}

void Returner::backward_failed(const TaskPtr& task, const BackwardPlan& plan, const Error& error) {
  const auto again = [this, task, weights = plan.weight_gradients] {
    // One that is over is about to be dropped.
    if (phases_.status(task->id.microbatch.phase, task->epoch) != PhaseStatus::kOver)
      queue_backward(task, weights);
  };
  if (error.code == ErrorCode::kOutOfMemory && task->state != TaskState::kOver &&
      hooks_.wait_for_room(task, again))
    return;
  if (plan.weight_gradients && error.code == ErrorCode::kDevice) return adding_failed(*task, error);
  if (plan.weight_gradients) contributions_.unreserve(task->id);
  if (error.code == ErrorCode::kCorrupt && !context_.last())
    return gradient_damaged(task, plan.weight_gradients && task->id.attempt.value != 0, error);
  hooks_.on_failed(task, error);
}

// Half of the contribution may be in the sums, and no one can tell which half.
void Returner::adding_failed(const MicrobatchTask& task, const Error& error) {
  context_.fail(
      {error.code, fmt::format("the backward of {} failed, which spoils this peer's sums: {}",
                               to_string(task.id.microbatch), error.what)});
}

// ---- Weight gradients that were left for later --------------------------------------------------

void Returner::queue_adding(const TaskPtr& task) {
  task->state = TaskState::kAdding;
  adding_.insert(task->id);
  const bool enough_wait = adding_.size() >= (context_.last() ? kAddingMaxAtLast : kAddingMax);
  if (enough_wait) SWARMLINE_MARK("returner.adds_before_more_is_computed");
  StageJob job;
  job.job_class = JobClass::kWeightGradients;
  job.phase = task->id.microbatch.phase;
  job.job.kind = JobKind::kWeightGradients;
  set_adding(job.job, context_, task);
  job.done = guard_.wrap([this, task](const JobReport& report) { after_adding(task, report); });
  context_.queue.submit(std::move(job));
  if (enough_wait) context_.queue.hurry_weight_gradients(task->id.microbatch.phase);
}

void Returner::after_adding(const TaskPtr& task, const JobReport& report) {
  adding_.erase(task->id);
  traffic_.computed(task->id.microbatch.phase, report.service, 1);
  if (!report.result) return adding_failed(*task, report.result.error());
  adding_took_ = report.service;
  task->has_graph = false;
  contributions_.added(task);
  hooks_.on_end(task);
}

// Its sender has forgotten the microbatch: the next stage is asked once more.
void Returner::gradient_damaged(const TaskPtr& task, bool claimed, const Error& error) {
  SWARMLINE_MARK("returner.damaged_gradient_asked_again");
  note_damaged_tensor(context_, MessageKind::kGradient, task->next, error);
  if (claimed) release_claim(task->id);
  if (task->cancelled || phases_.status(task->id.microbatch.phase) == PhaseStatus::kOver)
    return hooks_.on_end(task);
  task->gradient = SharedBytes();
  task->gradient_values = SharedBytes();
  task->state = TaskState::kDownstream;
  hooks_.on_damaged(task);
}

// Ends a try that no stage below needs; whoever sent it kept it until now.
void Returner::nothing_below(const TaskPtr& task) {
  if (!task->local() && !task->orphan && !task->cancelled) {
    wire::Gradient gradient;
    *gradient.mutable_id() = to_wire(task->id);
    gradient.set_era(context_.era.value);
    gradient.set_nothing_below(true);
    gradient.set_stepped(phases_.stepped().value);
    gradient.set_waiting_ns(static_cast<std::uint64_t>(context_.queue.backlog().count()));
    reply(*task, make_frame(MessageKind::kGradient, gradient));
  }
  hooks_.on_end(task);
}

void Returner::reply(const MicrobatchTask& task, Frame frame) {
  traffic_.send_back(task.upstream, task.id.microbatch.phase, std::move(frame));
}

// ---- The upstream's word ------------------------------------------------------------------------

// A frozen upstream can't start its own timer, and its upstream hears nothing: the one that waits
// for its word says so.
void Returner::arm_arrival_timer(const TaskPtr& task) {
  awaiting_arrival_[task->id] = task;
  task->arrival_timer = context_.runtime.call_after(
      from_seconds(context_.config.wiring.hop_timeout_seconds), guard_.wrap([this, task] {
        if (awaiting_arrival_.erase(task->id) == 0) return;
        SWARMLINE_MARK("returner.upstream_stalled");
        wire::StallReport stall;
        *stall.mutable_seat() = to_wire(context_.self);
        *stall.mutable_stalled() = to_wire(task->upstream);
        *stall.mutable_id() = to_wire(task->id);
        context_.notify_coordinator(make_frame(MessageKind::kStallReport, stall));
      }));
}

bool Returner::on_arrived(const Seat& from, const AttemptId& id) {
  const auto waiting = awaiting_arrival_.find(id);
  if (waiting == awaiting_arrival_.end() || waiting->second->upstream.peer != from.peer)
    return false;
  context_.runtime.cancel(waiting->second->arrival_timer);
  awaiting_arrival_.erase(waiting);
  return true;
}

void Returner::on_peer_lost(const Seat& lost) {
  std::erase_if(awaiting_arrival_, [&](const auto& entry) {
    if (!is_over_with(entry.second->upstream, lost)) return false;
    context_.runtime.cancel(entry.second->arrival_timer);
    return true;
  });
}

void Returner::drop(const Phase& phase) {
  std::erase_if(adding_, [&](const AttemptId& id) { return id.microbatch.phase == phase; });
  std::erase_if(awaiting_arrival_, [&](const auto& entry) {
    if (entry.first.microbatch.phase != phase) return false;
    context_.runtime.cancel(entry.second->arrival_timer);
    return true;
  });
}

void Returner::check_invariants() const {
  for (const auto& [id, task] : awaiting_arrival_)
    SWARMLINE_CHECK(task->id == id && !task->local() &&
                    (task->state == TaskState::kOver || task->state == TaskState::kAdding));
}

}  // namespace swarmline
