#include "pipeline/stage/microbatch_flow.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/limits.h"
#include "engine/base/log.h"
#include "pipeline/stage/stage_compute.h"

namespace swarmline {

MicrobatchFlow::MicrobatchFlow(StageContext& context, PhaseBook& phases,
                               Contributions& contributions, Wiring& wiring,
                               std::uint64_t admit_bytes_max,
                               std::function<void()> on_local_finished)
    : context_(context),
      phases_(phases),
      contributions_(contributions),
      wiring_(wiring),
      admit_bytes_max_(admit_bytes_max),
      on_local_finished_(std::move(on_local_finished)),
      alive_(std::make_shared<MicrobatchFlow*>(this)) {}

MicrobatchFlow::~MicrobatchFlow() {
  for (auto& [id, task] : outgoing_) context_.runtime.cancel(task->hop_timer);
  for (auto& [id, task] : awaiting_arrival_) context_.runtime.cancel(task->arrival_timer);
}

void MicrobatchFlow::set_next_seats(std::vector<Seat> seats) {
  next_seats_.clear();
  for (const Seat& seat : seats) next_seats_[seat.peer] = seat;
  retry_seeking();
}

Attempt MicrobatchFlow::new_attempt() {
  return Attempt{std::uint64_t{context_.self.peer.value} << 32 | next_attempt_++};
}

std::function<void(JobReport)> MicrobatchFlow::guarded(std::function<void(JobReport)> done) {
  std::weak_ptr<MicrobatchFlow*> weak = alive_;
  return [weak, done = std::move(done)](JobReport report) {
    if (weak.lock()) done(std::move(report));
  };
}

// ---- Arrival ------------------------------------------------------------------------------------

bool MicrobatchFlow::has_room(std::uint64_t bytes) const {
  // An empty peer takes anything, so that one microbatch larger than the budget can still be
  // trained on.
  return admitted_bytes_ == 0 || admitted_bytes_ + bytes <= admit_bytes_max_;
}

void MicrobatchFlow::start_local(const AttemptId& id, std::string mask, std::uint32_t rows,
                                 SharedBytes tokens, SharedBytes targets) {
  auto task = std::make_shared<MicrobatchTask>();
  task->id = id;
  task->mask = std::move(mask);
  task->rows = rows;
  task->input = std::move(tokens);
  task->targets = std::move(targets);
  const std::uint64_t count = std::uint64_t{rows} * context_.spec.sequence;
  if (!context_.last())
    task->targets_wire =
        pack_targets({reinterpret_cast<const std::int32_t*>(task->targets.data()), count},
                     context_.spec.shape.vocab);
  ++local_in_flight_;
  admit(task);
}

Result<void> MicrobatchFlow::on_forward(const Seat& from, const Frame& frame) {
  auto message = parse<wire::Forward>(frame);
  if (!message) return std::unexpected(message.error());
  const AttemptId id = from_wire(message->id());
  if (message->era() != context_.era.value ||
      phases_.status(id.microbatch.phase) == PhaseStatus::kOver) {
    refuse(from, id, wire::Refused::RETIRED);
    return {};
  }
  if (context_.first()) return fail(ErrorCode::kCorrupt, "the first stage takes no activations");
  if (phases_.beyond_reach(id.microbatch.phase) || !takes(id.attempt))
    return fail(ErrorCode::kCorrupt, "a forward of a phase or an attempt that can't be");
  if (tasks_.contains(id)) return {};
  if (message->rows() != context_.config.batch.microbatch)
    return fail(ErrorCode::kCorrupt,
                "a forward with another number of rows than the run's microbatch");
  auto header = read_wire_header(frame.received_payload());
  if (!header) return std::unexpected(header.error());
  if (header->elements != context_.activation_elements(message->rows()))
    return fail(ErrorCode::kCorrupt, "an activation of another shape than this stage takes");
  const std::uint64_t tokens = std::uint64_t{message->rows()} * context_.spec.sequence;
  if (message->targets().size() != tokens * target_bytes(context_.spec.shape.vocab) ||
      message->stage_mask().size() > (context_.stage.stages + 7U) / 8U)
    return fail(ErrorCode::kCorrupt, "targets or a stage mask of another length");

  auto task = std::make_shared<MicrobatchTask>();
  task->id = id;
  task->upstream = from;
  task->mask = message->stage_mask();
  task->rows = message->rows();
  task->input = frame.payload.front();
  task->targets_wire = message->targets();
  if (context_.last()) {
    auto targets =
        unpack_targets(task->targets_wire, std::uint64_t{task->rows} * context_.spec.sequence,
                       context_.spec.shape.vocab);
    if (!targets) return std::unexpected(targets.error());
    task->targets = std::move(*targets);
  }
  const std::uint64_t activation_bytes =
      context_.activation_elements(task->rows) * size_bytes(context_.spec.shape.dtype);
  task->admitted_bytes =
      task->input.size() + activation_bytes +
      retained_bytes(context_.spec, context_.stage, task->rows, context_.recompute);
  if (!has_room(task->admitted_bytes)) {
    refused_full_[from.peer] = from;
    refuse(from, id, wire::Refused::FULL);
    return {};
  }
  admit(task);
  return {};
}

void MicrobatchFlow::admit(const TaskPtr& task) {
  tasks_[task->id] = task;
  admitted_bytes_ += task->admitted_bytes;
  if (phases_.status(task->id.microbatch.phase) == PhaseStatus::kActive)
    queue_forward(task);
  else
    held_[task->id.microbatch.phase].push_back(task);
}

void MicrobatchFlow::on_active(const Phase& phase) {
  auto held = held_.extract(phase);
  if (held.empty()) return;
  for (const TaskPtr& task : held.mapped())
    if (task->state != TaskState::kOver) queue_forward(task);
}

// ---- Forward ------------------------------------------------------------------------------------

void MicrobatchFlow::queue_forward(const TaskPtr& task) {
  task->state = TaskState::kForward;
  auto result = std::make_shared<ForwardResult>();
  StageJob job;
  job.job_class = JobClass::kForward;
  job.phase = task->id.microbatch.phase;
  job.job.kind = JobKind::kForward;
  job.job.body = forward_body(context_, task, result);
  job.done =
      guarded([this, task, result](JobReport report) { after_forward(task, report, *result); });
  context_.queue.submit(std::move(job));
}

void MicrobatchFlow::after_forward(const TaskPtr& task, const JobReport& report,
                                   const ForwardResult& result) {
  busy_ns_[task->id.microbatch.phase] += static_cast<std::uint64_t>(report.service.count());
  task->has_graph = report.result.has_value() && task->train();
  if (task->cancelled) {
    release_graph(task);
    return finish(task);
  }
  if (!report.result) return compute_failed(task, report.result.error());
  task->loss_sum = result.loss_sum;
  task->output = result.wire;
  if (context_.last()) {
    if (!task->local()) {
      wire::ForwardDone done;
      *done.mutable_id() = to_wire(task->id);
      done.set_service_ns(static_cast<std::uint64_t>(report.service.count()));
      reply(*task, make_frame(MessageKind::kForwardDone, done));
    }
    if (task->train()) return got_gradient(task);
    contributions_.evaluated(task);
    return finish(task);
  }
  task->outgoing = task->id;
  send_on(task);
  if (!task->local()) {
    wire::ForwardDone done;
    *done.mutable_id() = to_wire(task->id);
    done.set_service_ns(static_cast<std::uint64_t>(report.service.count()));
    done.set_next_peer(task->next.peer.value);
    reply(*task, make_frame(MessageKind::kForwardDone, done));
  }
}

void MicrobatchFlow::send_on(const TaskPtr& task) {
  const auto picked = wiring_.pick(task->id.microbatch, task->tried);
  if (!picked || !next_seats_.contains(*picked)) {
    if (picked) wiring_.on_settled(*picked);
    task->state = TaskState::kSeeking;
    seeking_.push_back(task);
    return;
  }
  task->state = TaskState::kDownstream;
  task->next = next_seats_.at(*picked);
  task->hop_open = true;
  ++task->sends;
  outgoing_[task->outgoing] = task;

  wire::Forward forward;
  *forward.mutable_id() = to_wire(task->outgoing);
  forward.set_era(context_.era.value);
  forward.set_version(phases_.version(task->id.microbatch.phase).value);
  forward.set_rows(task->rows);
  forward.set_stage_mask(task->mask);
  forward.set_targets(task->targets_wire);
  Frame frame = make_frame(MessageKind::kForward, forward, {task->output});
  send_next(task->next, task->id.microbatch.phase, std::move(frame), task->targets_wire.size());
  wiring_.on_sent(task->next.peer, Duration{});
  arm_hop_timer(task);
}

void MicrobatchFlow::arm_hop_timer(const TaskPtr& task) {
  context_.runtime.cancel(task->hop_timer);
  const Duration timeout = from_seconds(context_.config.wiring.hop_timeout_seconds);
  std::weak_ptr<MicrobatchFlow*> weak = alive_;
  task->hop_timer = context_.runtime.call_after(timeout, [weak, task] {
    if (auto self = weak.lock()) (*self)->resend(task, true);
  });
}

void MicrobatchFlow::settle_hop(const TaskPtr& task) {
  context_.runtime.cancel(task->hop_timer);
  task->hop_timer = {};
  if (std::exchange(task->hop_open, false)) wiring_.on_settled(task->next.peer);
}

void MicrobatchFlow::resend(const TaskPtr& task, bool stalled) {
  if (task->state != TaskState::kDownstream || task->cancelled) return;
  const Seat old = task->next;
  if (stalled) {
    log(LogLevel::kWarn, "{} did not answer for {} in time; sending it to another peer",
        to_string(old), to_string(task->id.microbatch));
    wiring_.on_timeout(old.peer, from_seconds(context_.config.wiring.hop_timeout_seconds));
    wire::StallReport stall;
    *stall.mutable_seat() = to_wire(context_.self);
    *stall.mutable_stalled() = to_wire(old);
    *stall.mutable_id() = to_wire(task->outgoing);
    context_.notify_coordinator(make_frame(MessageKind::kStallReport, stall));
    wire::Cancel cancel;
    *cancel.mutable_id() = to_wire(task->outgoing);
    send_next(old, task->id.microbatch.phase, make_frame(MessageKind::kCancel, cancel));
  }
  settle_hop(task);
  task->tried.push_back(old.peer);
  if (task->sends >= Limits::attempts_per_microbatch_max)
    return compute_failed(task, {ErrorCode::kDeadline, "no peer of the next stage answered"});
  // With everybody tried once, everybody is worth another try.
  if (task->tried.size() >= next_seats_.size()) task->tried = {old.peer};
  if (next_seats_.size() == 1) task->tried.clear();
  outgoing_.erase(task->outgoing);
  stale_outgoing_[task->outgoing] = {task, old.peer};
  task->outgoing.attempt = new_attempt();
  send_on(task);
}

// The highest bit of an attempt names the second run of a contribution that is taken back.
bool MicrobatchFlow::takes(Attempt attempt) {
  return attempt.value >> 63 == 0;
}

TaskPtr MicrobatchFlow::outgoing(const AttemptId& id, const Seat& from) {
  wiring_.on_heard(from.peer);
  if (auto it = outgoing_.find(id); it != outgoing_.end())
    return it->second->next.peer == from.peer ? it->second : nullptr;
  if (auto it = stale_outgoing_.find(id); it != stale_outgoing_.end())
    return it->second.sent_to == from.peer ? it->second.task : nullptr;
  return nullptr;
}

Result<void> MicrobatchFlow::on_forward_done(const Seat& from, const Frame& frame) {
  auto message = parse<wire::ForwardDone>(frame);
  if (!message) return std::unexpected(message.error());
  const AttemptId id = from_wire(message->id());
  wiring_.on_forward_done(from.peer, Duration(static_cast<std::int64_t>(message->service_ns())));
  const TaskPtr task = outgoing(id, from);
  if (!task || task->state != TaskState::kDownstream || task->outgoing != id) return {};
  if (!task->train()) {
    finish(task);
  } else if (task->next.stage.value + 1U == context_.stage.stages) {
    arm_hop_timer(task);  // the last stage has its gradient at once and is at work on it
  } else {
    context_.runtime.cancel(task->hop_timer);
    task->hop_timer = {};
  }
  return {};
}

Result<void> MicrobatchFlow::on_gradient_arrived(const Seat& from, const Frame& frame) {
  auto message = parse<wire::GradientArrived>(frame);
  if (!message) return std::unexpected(message.error());
  const AttemptId id = from_wire(message->id());
  // From upstream: our gradient is in its hands.
  if (auto waiting = awaiting_arrival_.find(id);
      waiting != awaiting_arrival_.end() && waiting->second->upstream.peer == from.peer) {
    context_.runtime.cancel(waiting->second->arrival_timer);
    awaiting_arrival_.erase(waiting);
    return {};
  }
  // From downstream: that hop starts on its backward.
  const TaskPtr task = outgoing(id, from);
  if (task && task->state == TaskState::kDownstream && task->outgoing == id) arm_hop_timer(task);
  return {};
}

Result<void> MicrobatchFlow::on_refused(const Seat& from, const Frame& frame) {
  auto message = parse<wire::Refused>(frame);
  if (!message) return std::unexpected(message.error());
  const AttemptId id = from_wire(message->id());
  const TaskPtr task = outgoing(id, from);
  if (!task || task->state != TaskState::kDownstream || task->outgoing != id) return {};
  switch (message->why()) {
    case wire::Refused::FULL:
      context_.runtime.cancel(task->hop_timer);
      task->hop_open = false;  // on_full gives the pick back
      wiring_.on_full(from.peer);
      outgoing_.erase(id);
      --task->sends;
      send_on(task);
      break;
    case wire::Refused::BROKEN:
    case wire::Refused::FENCED:
      resend(task, false);
      break;
    default:  // RETIRED: that peer is ahead; our own retirement is on its way, or else the timer is
      arm_hop_timer(task);
      break;
  }
  return {};
}

void MicrobatchFlow::on_stall(const Seat& stalled, const AttemptId& id) {
  // The reporter knows the attempt by the name it left the stalled peer with; ours may differ.
  std::vector<TaskPtr> sent_there;
  for (const auto& [outgoing_id, task] : outgoing_)
    if (outgoing_id.microbatch == id.microbatch && task->next == stalled)
      sent_there.push_back(task);
  for (const TaskPtr& task : sent_there) resend(task, true);
}

void MicrobatchFlow::on_link_lost(const Seat& peer) {
  std::vector<TaskPtr> waiting;
  for (const auto& [id, task] : outgoing_)
    if (task->next == peer && task->state == TaskState::kDownstream) waiting.push_back(task);
  // The word that would end a ban, or the credit we wait for, may have been lost with the link.
  wiring_.on_credit(peer.peer);
  for (const TaskPtr& task : waiting) resend(task, false);
  retry_seeking();
}

void MicrobatchFlow::retry_seeking() {
  std::deque<TaskPtr> waiting;
  waiting.swap(seeking_);
  for (const TaskPtr& task : waiting)
    if (task->state == TaskState::kSeeking && !task->cancelled) send_on(task);
}

// ---- Backward -----------------------------------------------------------------------------------

Result<void> MicrobatchFlow::on_gradient(const Seat& from, Frame frame) {
  auto message = parse<wire::Gradient>(frame);
  if (!message) return std::unexpected(message.error());
  const AttemptId id = from_wire(message->id());
  if (message->era() != context_.era.value) return {};
  wire::GradientArrived arrived;
  *arrived.mutable_id() = message->id();
  send_next(from, id.microbatch.phase, make_frame(MessageKind::kGradientArrived, arrived));
  wiring_.on_backward_done(from.peer, Duration(static_cast<std::int64_t>(message->service_ns())));
  const TaskPtr task = outgoing(id, from);
  if (!task || (task->state != TaskState::kDownstream && task->state != TaskState::kSeeking))
    return {};
  auto header = read_wire_header(frame.received_payload());
  if (!header) return std::unexpected(header.error());
  if (header->elements != context_.activation_elements(task->rows))
    return fail(ErrorCode::kCorrupt, "a gradient of another shape than this stage's output");
  settle_hop(task);
  task->gradient = frame.payload.front();
  task->output = SharedBytes();
  if (!task->local()) {
    wire::GradientArrived started;
    *started.mutable_id() = to_wire(task->id);
    reply(*task, make_frame(MessageKind::kGradientArrived, started));
  }
  got_gradient(task);
  retry_seeking();
  return {};
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
        if (!self || task->state != TaskState::kClaiming) return;
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
      !context_.first() && !mask_empty_below(task->mask, context_.self.stage);
  if (!weight_gradients && !input_gradient) {
    return finish(task);
  }
  task->state = TaskState::kBackward;
  auto result = std::make_shared<BackwardResult>();
  StageJob job;
  job.job_class = JobClass::kBackward;
  job.phase = task->id.microbatch.phase;
  job.job.kind = JobKind::kBackward;
  job.job.body = backward_body(context_, task, {weight_gradients, input_gradient}, result);
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
    return compute_failed(task, error);
  }
  task->has_graph = false;
  if (added) contributions_.added(task);
  const bool over = phases_.status(phase) == PhaseStatus::kOver;
  if (!task->local() && !result.wire.empty() && !task->cancelled && !over) {
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

// ---- Ends ---------------------------------------------------------------------------------------

Result<void> MicrobatchFlow::on_cancel(const Seat& from, const Frame& frame) {
  auto message = parse<wire::Cancel>(frame);
  if (!message) return std::unexpected(message.error());
  // Whoever cancels has banned this peer; hearing from it ends that.
  context_.links.send(from, make_frame(MessageKind::kCredit, wire::Credit()));
  auto it = tasks_.find(from_wire(message->id()));
  if (it == tasks_.end() || it->second->upstream.peer != from.peer) return {};
  const TaskPtr task = it->second;
  // Its gradient is being added, or the ledger may have granted that: let it finish.
  if (task->state == TaskState::kBackward || task->state == TaskState::kClaiming) return {};
  task->cancelled = true;
  if (task->state == TaskState::kDownstream) {
    wire::Cancel cancel;
    *cancel.mutable_id() = to_wire(task->outgoing);
    send_next(task->next, task->id.microbatch.phase, make_frame(MessageKind::kCancel, cancel));
  }
  const bool held = phases_.status(task->id.microbatch.phase) != PhaseStatus::kActive;
  if (task->state != TaskState::kForward || held) finish(task);
  return {};
}

void MicrobatchFlow::compute_failed(const TaskPtr& task, const Error& error) {
  log(LogLevel::kError, "{} failed here: {}", to_string(task->id.microbatch), error.what);
  wire::ComputeFailed failed;
  *failed.mutable_seat() = to_wire(context_.self);
  *failed.mutable_id() = to_wire(task->id);
  failed.set_what(error.what);
  context_.notify_coordinator(make_frame(MessageKind::kComputeFailed, failed));
  if (!task->local()) refuse(task->upstream, task->id, wire::Refused::BROKEN);
  finish(task);
}

void MicrobatchFlow::finish(const TaskPtr& task) {
  if (task->state == TaskState::kOver) return;
  settle_hop(task);
  task->state = TaskState::kOver;
  tasks_.erase(task->id);
  outgoing_.erase(task->outgoing);
  std::erase_if(stale_outgoing_, [&](const auto& entry) { return entry.second.task == task; });
  admitted_bytes_ -= task->admitted_bytes;
  task->output = SharedBytes();
  release_graph(task);
  if (task->local()) {
    --local_in_flight_;
    on_local_finished_();
  }
  offer_credit();
  retry_seeking();
}

void MicrobatchFlow::release_graph(const TaskPtr& task) {
  if (!std::exchange(task->has_graph, false)) return;
  StageJob job;
  job.job.body = [&model = context_.model, id = task->id]() -> Result<void> {
    model.release(id);
    return {};
  };
  job.done = [](JobReport) {};
  context_.queue.submit(std::move(job));
}

void MicrobatchFlow::drop(const Phase& phase) {
  context_.queue.drop(phase);
  std::vector<TaskPtr> dropped;
  for (const auto& [id, task] : tasks_)
    if (id.microbatch.phase == phase) dropped.push_back(task);
  held_.erase(phase);
  std::erase_if(seeking_, [&](const TaskPtr& task) { return task->id.microbatch.phase == phase; });
  for (const TaskPtr& task : dropped) {
    task->cancelled = true;
    finish(task);
  }
  std::erase_if(awaiting_arrival_, [&](const auto& entry) {
    if (entry.first.microbatch.phase != phase) return false;
    context_.runtime.cancel(entry.second->arrival_timer);
    return true;
  });
}

void MicrobatchFlow::subtract(const TaskPtr& task, std::function<void()> done) {
  StageJob job;
  job.phase = task->id.microbatch.phase;
  job.job.kind = JobKind::kBackward;
  job.job.body = subtract_body(context_, task);
  job.done = guarded([this, done = std::move(done)](JobReport report) {
    if (!report.result) return context_.fail(report.result.error());
    done();
  });
  context_.queue.submit(std::move(job));
}

// Everything a step's microbatches make two stages send each other is on that boundary's account:
// what is neither tensor nor target tokens is framing. Evaluations, and what comes after a step was
// sealed, are on nobody's.
bool MicrobatchFlow::counts(const Phase& phase) const {
  return phase.kind == PhaseKind::kTrain && phases_.microbatches(phase) > 0;
}

void MicrobatchFlow::send_next(const Seat& to, const Phase& phase, Frame frame,
                               std::uint64_t tokens) {
  if (counts(phase)) {
    wire::BoundaryBytes& bytes = boundary_[phase];
    bytes.set_forward_codec(bytes.forward_codec() + frame.payload_bytes());
    bytes.set_forward_tokens(bytes.forward_tokens() + tokens);
    bytes.set_forward_framing(bytes.forward_framing() + frame.wire_bytes() - frame.payload_bytes() -
                              tokens);
    bytes.set_forward_messages(bytes.forward_messages() + (frame.payload.empty() ? 0 : 1));
  }
  context_.links.send(to, std::move(frame));
}

void MicrobatchFlow::send_back(const Seat& to, const Phase& phase, Frame frame) {
  if (counts(phase)) {
    wire::BoundaryBytes& bytes = boundary_[phase];
    bytes.set_backward_codec(bytes.backward_codec() + frame.payload_bytes());
    bytes.set_backward_framing(bytes.backward_framing() + frame.wire_bytes() -
                               frame.payload_bytes());
    bytes.set_backward_messages(bytes.backward_messages() + (frame.payload.empty() ? 0 : 1));
  }
  context_.links.send(to, std::move(frame));
}

void MicrobatchFlow::reply(const MicrobatchTask& task, Frame frame) {
  send_back(task.upstream, task.id.microbatch.phase, std::move(frame));
}

void MicrobatchFlow::refuse(const Seat& to, const AttemptId& id, wire::Refused::Why why) {
  wire::Refused refused;
  *refused.mutable_id() = to_wire(id);
  refused.set_why(why);
  send_back(to, id.microbatch.phase, make_frame(MessageKind::kRefused, refused));
}

void MicrobatchFlow::offer_credit() {
  if (refused_full_.empty() || admitted_bytes_ > admit_bytes_max_ / 2) return;
  for (const auto& [peer, seat] : std::exchange(refused_full_, {}))
    context_.links.send(seat, make_frame(MessageKind::kCredit, wire::Credit()));
}

Result<void> MicrobatchFlow::on_frame(const Seat& from, Frame frame) {
  switch (kind_of(frame)) {
    case MessageKind::kForward:
      return on_forward(from, frame);
    case MessageKind::kForwardDone:
      return on_forward_done(from, frame);
    case MessageKind::kGradientArrived:
      return on_gradient_arrived(from, frame);
    case MessageKind::kGradient:
      return on_gradient(from, std::move(frame));
    case MessageKind::kRefused:
      return on_refused(from, frame);
    case MessageKind::kCancel:
      return on_cancel(from, frame);
    case MessageKind::kCredit:
      wiring_.on_credit(from.peer);
      retry_seeking();
      return {};
    default:
      return fail(ErrorCode::kCorrupt, "a message that peers don't send each other");
  }
}

wire::BoundaryBytes MicrobatchFlow::take_boundary_bytes(const Phase& phase) {
  auto entry = boundary_.extract(phase);
  return entry.empty() ? wire::BoundaryBytes() : entry.mapped();
}

std::uint64_t MicrobatchFlow::take_busy_ns(const Phase& phase) {
  auto entry = busy_ns_.extract(phase);
  return entry.empty() ? 0 : entry.mapped();
}

}  // namespace swarmline
