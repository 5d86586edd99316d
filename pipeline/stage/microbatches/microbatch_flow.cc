#include "pipeline/stage/microbatches/microbatch_flow.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "pipeline/stage/microbatches/microbatch_memory.h"
#include "pipeline/stage/microbatches/stage_compute.h"

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
      monitor_(context),
      early_(context.activation_elements(context.config.batch.microbatch),
             context.spec.shape.dtype),
      order_(context_.config, context_.stage),
      free_routes_(context_.config.pipeline.wiring != "static"),
      clock_(from_seconds(context_.config.wiring.hop_timeout_seconds)),
      on_local_finished_(std::move(on_local_finished)),
      alive_(std::make_shared<MicrobatchFlow*>(this)) {}

MicrobatchFlow::~MicrobatchFlow() {
  for (auto& [id, task] : outgoing_) context_.runtime.cancel(task->hop_timer);
  for (auto& [id, task] : awaiting_arrival_) context_.runtime.cancel(task->arrival_timer);
}

void MicrobatchFlow::set_next_seats(std::vector<Seat> seats) {
  const auto before = std::exchange(next_seats_, {});
  for (const Seat& seat : seats) next_seats_[seat.peer] = seat;
  for (const auto& [peer, seat] : before)
    if (!next_seats_.contains(peer)) clock_.forget(peer);
  retry_seeking();
}

void MicrobatchFlow::set_share(std::uint32_t rank, std::uint32_t members) {
  order_.set_share(rank, members);
  go_on_in_order();
}

Attempt MicrobatchFlow::new_attempt() {
  return resend_attempt(context_.self.peer, next_attempt_++);
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

void MicrobatchFlow::start_local(const AttemptId& id, PhaseEpoch epoch, std::string mask,
                                 std::uint32_t rows, SharedBytes tokens, SharedBytes targets) {
  auto task = std::make_shared<MicrobatchTask>(id);
  task->epoch = epoch;
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
  SharedBytes values = decoded_on_arrival(from, id, frame);
  if (message->era() != context_.era.value ||
      phases_.status(id.microbatch.phase, PhaseEpoch{message->opening()}) == PhaseStatus::kOver) {
    refuse(from, id, wire::Refused::RETIRED);
    return {};
  }
  if (context_.first() || from.stage.value + 1U != context_.self.stage.value)
    return fail(ErrorCode::kCorrupt, "activations that are not those of the stage before");
  if (phases_.beyond_reach(id.microbatch.phase) || is_second_run(id.attempt))
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

  auto task = std::make_shared<MicrobatchTask>(id);
  task->epoch = PhaseEpoch{message->opening()};
  task->upstream = from;
  task->mask = message->stage_mask();
  task->rows = message->rows();
  task->input = frame.payload.front();
  task->input_values = std::move(values);
  monitor_.on_arrival(CodecMonitor::Way::kForward, id.microbatch.phase, frame);
  task->targets_wire = message->targets();
  if (context_.last()) {
    auto targets =
        unpack_targets(task->targets_wire, std::uint64_t{task->rows} * context_.spec.sequence,
                       context_.spec.shape.vocab);
    if (!targets) return std::unexpected(targets.error());
    task->targets = std::move(*targets);
  }
  task->admitted_bytes = microbatch_bytes(context_, *task);
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
  queue_or_hold(task);
}

PhaseStatus MicrobatchFlow::status(const MicrobatchTask& task) const {
  return phases_.status(task.id.microbatch.phase, task.epoch);
}

void MicrobatchFlow::queue_or_hold(const TaskPtr& task) {
  if (status(*task) == PhaseStatus::kActive)
    queue_forward(task);
  else
    held_[task->id.microbatch.phase].push_back(task);
}

void MicrobatchFlow::on_active(const Phase& phase) {
  if (auto held = held_.extract(phase); !held.empty())
    for (const TaskPtr& task : held.mapped())
      if (task->state != TaskState::kOver) queue_or_hold(task);
}

// ---- Forward ------------------------------------------------------------------------------------

void MicrobatchFlow::queue_forward(const TaskPtr& task) {
  if (order_.hold_forward(task)) {
    task->state = TaskState::kHeld;
    return;
  }
  compute_forward(task);
}

void MicrobatchFlow::go_on_in_order() {
  const MicrobatchOrder::Ready ready = order_.take_ready();
  const auto counts_still = [&](const TaskPtr& task) {
    return status(*task) == PhaseStatus::kActive;
  };
  for (const TaskPtr& task : ready.forwards)
    if (counts_still(task)) queue_forward(task);
  for (const TaskPtr& task : ready.backwards)
    if (counts_still(task)) got_gradient(task);
}

void MicrobatchFlow::compute_forward(const TaskPtr& task) {
  task->state = TaskState::kForward;
  task->version = phases_.version(task->id.microbatch.phase);
  auto result = std::make_shared<ForwardResult>();
  StageJob job;
  job.job_class = JobClass::kForward;
  job.phase = task->id.microbatch.phase;
  job.job.kind = JobKind::kForward;
  job.job.body =
      forward_body(context_, task, monitor_.plan(CodecMonitor::Way::kForward, *task), result);
  job.done =
      guarded([this, task, result](JobReport report) { after_forward(task, report, *result); });
  context_.queue.submit(std::move(job));
}

void MicrobatchFlow::after_forward(const TaskPtr& task, const JobReport& report,
                                   const ForwardResult& result) {
  busy_ns_[task->id.microbatch.phase] += static_cast<std::uint64_t>(report.service.count());
  task->has_graph = report.result.has_value() && task->train();
  if (task->cancelled) {
    // Whoever gave it up learns how slow this peer is.
    if (report.result && task->state != TaskState::kOver) forward_done(*task, report);
    release_graph(task);
    return finish(task);
  }
  if (!report.result) {
    const Error& error = report.result.error();
    if (error.code == ErrorCode::kCorrupt && !task->local()) return input_damaged(task, error);
    return compute_failed(task, error);
  }
  task->input_values = SharedBytes();
  task->loss_sum = result.loss_sum;
  task->output = result.wire;
  monitor_.on_sample(CodecMonitor::Way::kForward, task->id.microbatch.phase, result.sample);
  if (context_.last()) {
    if (!task->local()) forward_done(*task, report);
    if (order_.hold_backward(task)) {
      task->state = TaskState::kHeld;
      return go_on_in_order();
    }
    if (task->train()) return got_gradient(task);
    contributions_.evaluated(task);
    return finish(task);
  }
  send_on(task);
  if (!task->local()) forward_done(*task, report);
}

void MicrobatchFlow::forward_done(const MicrobatchTask& task, const JobReport& report) {
  wire::ForwardDone done;
  *done.mutable_id() = to_wire(task.id);
  done.set_service_ns(static_cast<std::uint64_t>(report.service.count()));
  done.set_next_peer(task.next.peer.value);
  reply(task, make_frame(MessageKind::kForwardDone, done));
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
  if (task->state == TaskState::kDownstream) cancel_next(task->next, task->outgoing);
  const bool held = status(*task) != PhaseStatus::kActive;
  if (task->state != TaskState::kForward || held) finish(task);
  return {};
}

void MicrobatchFlow::compute_failed(const TaskPtr& task, const Error& error) {
  log(LogLevel::kError, "{}: {} failed here: {}", to_string(context_.self),
      to_string(task->id.microbatch), error.what);
  wire::ComputeFailed failed;
  *failed.mutable_seat() = to_wire(context_.self);
  *failed.mutable_id() = to_wire(task->id);
  failed.set_what(error.what);
  context_.notify_coordinator(make_frame(MessageKind::kComputeFailed, failed));
  if (!task->local()) refuse(task->upstream, task->id, wire::Refused::BROKEN);
  finish(task);
}

// Nobody failed to compute it: its bytes changed on the way, and are sent again.
void MicrobatchFlow::input_damaged(const TaskPtr& task, const Error& error) {
  note_damage(MessageKind::kForward, task->upstream, error);
  refuse(task->upstream, task->id, wire::Refused::BROKEN);
  finish(task);
}

void MicrobatchFlow::note_damage(MessageKind kind, const Seat& from, const Error& error) {
  log(LogLevel::kWarn, "a damaged {} from {}: {}", to_string(kind), to_string(from), error.what);
  if (context_.metrics)
    context_.metrics
        ->counter("swarmline_bad_frames_total", {{"kind", std::string(to_string(kind))}})
        .add();
}

void MicrobatchFlow::finish(const TaskPtr& task) {
  if (task->state == TaskState::kOver) return;
  settle_hop(task);
  task->state = TaskState::kOver;
  tasks_.erase(task->id);
  outgoing_.erase(task->outgoing);
  clock_.drop(task->outgoing);
  std::erase_if(stale_outgoing_, [&](const auto& entry) { return entry.second.task == task; });
  admitted_bytes_ -= task->admitted_bytes;
  task->output = SharedBytes();
  release_graph(task);
  if (task->local()) {
    --local_in_flight_;
    on_local_finished_();
  }
  order_.on_over(task);
  offer_credit();
  retry_seeking();
  go_on_in_order();
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
  clock_.on_over(phase, context_.runtime.now());
  std::vector<TaskPtr> dropped;
  for (const auto& [id, task] : tasks_)
    if (id.microbatch.phase == phase && status(*task) == PhaseStatus::kOver)
      dropped.push_back(task);
  if (auto held = held_.extract(phase); !held.empty()) {
    std::erase_if(held.mapped(),
                  [&](const TaskPtr& task) { return status(*task) == PhaseStatus::kOver; });
    if (!held.mapped().empty()) held_.insert(std::move(held));
  }
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
      if (!message || context_.first() || !has_room(arrival.payload_bytes)) return;
      return early_.on_arriving(from.peer, from_wire(message->id()), arrival);
    }
    case MessageKind::kGradient: {
      const auto message = parse<wire::Gradient>(named);
      if (!message || context_.last() || !outgoing_.contains(from_wire(message->id()))) return;
      return early_.on_arriving(from.peer, from_wire(message->id()), arrival);
    }
    default:
      return;
  }
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
  wire::BoundaryBytes bytes = entry.empty() ? wire::BoundaryBytes() : entry.mapped();
  monitor_.take(phase, bytes);
  return bytes;
}

std::uint64_t MicrobatchFlow::take_busy_ns(const Phase& phase) {
  auto entry = busy_ns_.extract(phase);
  return entry.empty() ? 0 : entry.mapped();
}

}  // namespace swarmline
