#include "pipeline/stage/microbatches/admission.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/marks.h"
#include "pipeline/stage/microbatches/microbatch_memory.h"
#include "pipeline/stage/microbatches/stage_compute.h"

namespace swarmline {

namespace {
constexpr double kInFlightGain = 1.0 / 32;
}  // namespace

Admission::Admission(StageContext& context, const PhaseBook& phases, CodecMonitor& monitor,
                     BoundaryTraffic& traffic, std::uint64_t admit_bytes_max, Hooks hooks)
    : context_(context),
      phases_(phases),
      monitor_(monitor),
      traffic_(traffic),
      room_(admit_bytes_max),
      hooks_(std::move(hooks)),
      order_(context_.config, context_.stage) {}

// ---- Arrival ------------------------------------------------------------------------------------

void Admission::start_local(const AttemptId& id, PhaseEpoch epoch, std::string mask,
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
  admit(task);
}

Result<void> Admission::check_forward(const Seat& from, const AttemptId& id,
                                      const wire::Forward& message, const Frame& frame) const {
  if (context_.first() || from.stage.value + 1U != context_.self.stage.value)
    return fail(ErrorCode::kCorrupt, "activations that are not those of the stage before");
  if (phases_.beyond_reach(id.microbatch.phase) || is_second_run(id.attempt))
    return fail(ErrorCode::kCorrupt, "a forward of a phase or an attempt that can't be");
  if (tasks_.contains(id)) return {};
  if (message.rows() != context_.config.batch.microbatch)
    return fail(ErrorCode::kCorrupt,
                "a forward with another number of rows than the run's microbatch");
  auto header = read_wire_header(frame.received_payload());
  if (!header) return std::unexpected(header.error());
  if (header->elements != context_.activation_elements(message.rows()))
    return fail(ErrorCode::kCorrupt, "an activation of another shape than this stage takes");
  const std::uint64_t tokens = std::uint64_t{message.rows()} * context_.spec.sequence;
  if (message.targets().size() != tokens * target_bytes(context_.spec.shape.vocab) ||
      message.stage_mask().size() > (context_.stage.stages + 7U) / 8U)
    return fail(ErrorCode::kCorrupt, "targets or a stage mask of another length");
  return {};
}

Result<void> Admission::on_forward(const Seat& from, const wire::Forward& message,
                                   const Frame& frame, SharedBytes values) {
  const AttemptId id = from_wire(message.id());
  const PhaseEpoch epoch{message.opening()};
  if (message.era() != context_.era.value ||
      phases_.status(id.microbatch.phase, epoch) == PhaseStatus::kOver) {
    SWARMLINE_MARK("admission.stale_forward_refused");
    refuse(from, id, wire::Refused::RETIRED);
    return {};
  }
  SWARMLINE_TRY(check_forward(from, id, message, frame));
  if (tasks_.contains(id)) return {};

  auto task = std::make_shared<MicrobatchTask>(id);
  task->epoch = epoch;
  task->upstream = from;
  task->mask = message.stage_mask();
  task->rows = message.rows();
  task->arrived_over = frame.received_over;
  task->input = frame.payload.front();
  task->input_values = std::move(values);
  monitor_.on_arrival(CodecMonitor::Way::kForward, id.microbatch.phase, frame);
  task->targets_wire = message.targets();
  if (context_.needs_targets()) {
    auto targets =
        unpack_targets(task->targets_wire, std::uint64_t{task->rows} * context_.spec.sequence,
                       context_.spec.shape.vocab);
    if (!targets) return std::unexpected(targets.error());
    task->targets = std::move(*targets);
  }
  task->admitted_bytes = microbatch_bytes(context_, *task);
  if (!has_room(task->admitted_bytes)) {
    SWARMLINE_MARK("admission.full_refused");
    refused_full_[from.peer] = from;
    refuse(from, id, wire::Refused::FULL);
    return {};
  }
  admit(task);
  return {};
}

// An empty peer takes anything, so that one microbatch larger than the budget can still be trained
// on.
bool Admission::has_room(std::uint64_t bytes) const {
  return admitted_bytes_ == 0 ||
         (admitted_bytes_ + bytes <= room_.bytes() && under_way() < may_have());
}

// What is held for a phase to come is not counted: it waits for those that there is to be room for.
std::uint64_t Admission::under_way() const {
  std::uint64_t held = 0;
  for (const auto& [phase, tasks] : held_)
    held += static_cast<std::uint64_t>(std::ranges::count_if(
        tasks, [](const TaskPtr& task) { return task->state != TaskState::kOver; }));
  return tasks_.size() - held;
}

// So many of these.
std::uint64_t Admission::may_have() const {
  const Slowdown& slowdown = context_.queue.slowdown();
  const bool all = !slowdown.is_slow() || context_.config.pipeline.wiring == WiringKind::kStatic;
  return all ? ~std::uint64_t{0} : slowdown.may_have(usually_in_flight_);
}

// What came last first.
void Admission::hand_back() {
  const std::uint64_t most = may_have();
  if (under_way() <= most) return;
  std::vector<TaskPtr> waiting;
  for (const auto& [id, task] : tasks_)
    if (task->state == TaskState::kForward && !task->local() && !task->cancelled)
      waiting.push_back(task);
  for (; under_way() > most && !waiting.empty(); waiting.pop_back()) {
    const TaskPtr& task = waiting.back();
    if (!context_.queue.withdraw(task->forward_job)) continue;
    SWARMLINE_MARK("admission.handed_back");
    refused_full_[task->upstream.peer] = task->upstream;
    refuse(task->upstream, task->id, wire::Refused::FULL);
    hooks_.on_end(task);
  }
}

void Admission::admit(const TaskPtr& task) {
  tasks_[task->id] = task;
  if (!context_.queue.slowdown().is_slow())
    usually_in_flight_ += kInFlightGain * (static_cast<double>(under_way()) - usually_in_flight_);
  admitted_bytes_ += task->admitted_bytes;
  largest_bytes_ = std::max(largest_bytes_, task->admitted_bytes);
  queue_or_hold(task);
}

PhaseStatus Admission::status(const MicrobatchTask& task) const {
  return phases_.status(task.id.microbatch.phase, task.epoch);
}

bool Admission::is_active(const MicrobatchTask& task) const {
  return status(task) == PhaseStatus::kActive;
}

void Admission::queue_or_hold(const TaskPtr& task) {
  if (is_active(*task)) return queue_forward(task);
  held_[task->id.microbatch.phase].push_back(task);
}

void Admission::on_active(const Phase& phase) {
  if (auto held = held_.extract(phase); !held.empty())
    for (const TaskPtr& task : held.mapped())
      if (task->state != TaskState::kOver) queue_or_hold(task);
}

// ---- Turns --------------------------------------------------------------------------------------

void Admission::set_share(std::uint32_t rank, std::uint32_t members) {
  order_.set_share(rank, members);
  go_on_in_order();
}

void Admission::lift_order() {
  order_.lift();
}

void Admission::queue_forward(const TaskPtr& task) {
  if (order_.hold_forward(task)) {
    task->state = TaskState::kHeld;
    return;
  }
  compute_forward(task);
}

void Admission::go_on_in_order() {
  const MicrobatchSchedule::Ready ready = order_.take_ready();
  for (const TaskPtr& task : ready.forwards)
    if (is_active(*task)) queue_forward(task);
  for (const TaskPtr& task : ready.backwards)
    if (is_active(*task)) hooks_.on_turn(task);
}

// ---- Forward ------------------------------------------------------------------------------------

void Admission::compute_forward(const TaskPtr& task) {
  task->state = TaskState::kForward;
  task->version = phases_.version(task->id.microbatch.phase);
  auto result = std::make_shared<ForwardResult>();
  StageJob job;
  job.job_class = JobClass::kForward;
  job.phase = task->id.microbatch.phase;
  job.job.kind = JobKind::kForward;
  set_forward(job.job, context_, task, monitor_.plan(CodecMonitor::Way::kForward, *task), result);
  job.done = guard_.wrap(
      [this, task, result](const JobReport& report) { after_forward(task, report, *result); });
  task->forward_job = context_.queue.submit(std::move(job));
}

void Admission::after_forward(const TaskPtr& task, const JobReport& report,
                              const ForwardResult& result) {
  traffic_.computed(task->id.microbatch.phase, report.service, 1);
  hand_back();
  task->has_graph = result.begun && task->train();
  if (task->cancelled) {
    // Whoever gave it up learns how slow this peer is.
    if (report.result && task->state != TaskState::kOver) say_forward_done(*task, report);
    release_graph(task);
    return hooks_.on_end(task);
  }
  if (!report.result) {
    const Error& error = report.result.error();
    if (error.code == ErrorCode::kCorrupt && !task->local()) return input_damaged(task, error);
    if (error.code == ErrorCode::kOutOfMemory) return device_full(task, error);
    return hooks_.on_failed(task, error);
  }
  task->input_values = SharedBytes();
  task->loss_sum = result.loss_sum;
  task->output = result.wire;
  monitor_.on_sample(CodecMonitor::Way::kForward, task->id.microbatch.phase, result.sample);
  if (!context_.last()) {
    hooks_.on_output(task);
    if (!task->local()) say_forward_done(*task, report);
    return;
  }
  if (!task->local()) say_forward_done(*task, report);
  if (!order_.hold_backward(task)) return hooks_.on_turn(task);
  task->state = TaskState::kHeld;
  go_on_in_order();
}

void Admission::say_forward_done(const MicrobatchTask& task, const JobReport& report) {
  wire::ForwardDone done;
  *done.mutable_id() = to_wire(task.id);
  done.set_service_ns(static_cast<std::uint64_t>(report.service.count()));
  done.set_next_peer(task.next.peer.value);
  done.set_stepped(phases_.stepped().value);
  done.set_waiting_ns(static_cast<std::uint64_t>(context_.queue.backlog().count()));
  if (task.arrived_over > report.service)
    done.set_arrived_ns(static_cast<std::uint64_t>(task.arrived_over.count()));
  traffic_.send_back(task.upstream, task.id.microbatch.phase,
                     make_frame(MessageKind::kForwardDone, done));
}

// Nobody failed to compute it: its bytes changed on the way, and are sent again.
void Admission::input_damaged(const TaskPtr& task, const Error& error) {
  SWARMLINE_MARK("admission.damaged_input_asked_again");
  note_damaged_tensor(context_, MessageKind::kForward, task->upstream, error);
  refuse(task->upstream, task->id, wire::Refused::BROKEN);
  hooks_.on_end(task);
}

// ---- A full device ------------------------------------------------------------------------------

// Whether others have graphs that will go. These are all there is room for: who waits for room has
// none.
bool Admission::others_make_room(const TaskPtr& task) {
  std::uint64_t bytes = 0;
  std::size_t graphs = 0;
  for (const auto& [id, other] : tasks_) {
    if (!other->has_graph || other == task || wait_for_room_.contains(id)) continue;
    ++graphs;
    bytes += other->admitted_bytes;
  }
  if (graphs == 0) return false;
  SWARMLINE_MARK("admission.device_full");
  if (graphs < graphs_max_) {
    log(LogLevel::kWarn, "{}: the device has no room for more than {} microbatches at once",
        to_string(context_.self), graphs);
    graphs_max_ = graphs;
  }
  if (!task->local()) room_.on_full(bytes);
  return true;
}

bool Admission::wait_for_room(const TaskPtr& task, std::function<void()> again) {
  if (!others_make_room(task)) return false;
  wait_for_room_[task->id] = {task, std::move(again)};
  return true;
}

// Its sender may pick another peer; what started here has nobody else.
void Admission::device_full(const TaskPtr& task, const Error& error) {
  const auto again = [this, task] {
    if (is_active(*task)) compute_forward(task);
  };
  if (task->local() ? wait_for_room(task, again) : others_make_room(task)) {
    if (task->local()) return;
    refused_full_[task->upstream.peer] = task->upstream;
    refuse(task->upstream, task->id, wire::Refused::FULL);
    return hooks_.on_end(task);
  }
  hooks_.on_failed(task, error);
}

void Admission::go_on_with_room() {
  for (const auto& [id, waiting] : std::exchange(wait_for_room_, {}))
    if (waiting.first->state != TaskState::kOver) waiting.second();
}

// ---- Ends ---------------------------------------------------------------------------------------

void Admission::leave(const TaskPtr& task) {
  tasks_.erase(task->id);
  wait_for_room_.erase(task->id);
  SWARMLINE_CHECK(admitted_bytes_ >= task->admitted_bytes);
  admitted_bytes_ -= task->admitted_bytes;
  release_graph(task);
  order_.on_over(task);
  offer_credit();
}

std::vector<TaskPtr> Admission::take_over(const Phase& phase) {
  if (phase.kind == PhaseKind::kTrain && room_.on_step(std::exchange(largest_bytes_, 0))) {
    SWARMLINE_MARK("admission.tries_more_room");
    graphs_max_ = std::numeric_limits<std::size_t>::max();
  }
  std::vector<TaskPtr> over;
  for (const auto& [id, task] : tasks_)
    if (id.microbatch.phase == phase && status(*task) == PhaseStatus::kOver) over.push_back(task);
  if (auto held = held_.extract(phase); !held.empty()) {
    std::erase_if(held.mapped(),
                  [&](const TaskPtr& task) { return status(*task) == PhaseStatus::kOver; });
    if (!held.mapped().empty()) held_.insert(std::move(held));
  }
  return over;
}

void Admission::on_peer_lost(const Seat& lost) {
  std::erase_if(refused_full_, [&](const auto& entry) { return is_over_with(entry.second, lost); });
  for (const auto& [id, task] : tasks_) task->orphan |= is_over_with(task->upstream, lost);
}

void Admission::release_graph(const TaskPtr& task) {
  if (!std::exchange(task->has_graph, false)) return;
  StageJob job;
  job.job.body = [&model = context_.model, id = task->id]() -> Result<void> {
    model.release(id);
    return {};
  };
  job.done = [](const JobReport&) {};
  context_.queue.submit(std::move(job));
}

void Admission::refuse(const Seat& to, const AttemptId& id, wire::Refused::Why why) {
  wire::Refused refused;
  *refused.mutable_id() = to_wire(id);
  refused.set_why(why);
  traffic_.send_back(to, id.microbatch.phase, make_frame(MessageKind::kRefused, refused));
}

void Admission::offer_credit() {
  if (refused_full_.empty() || admitted_bytes_ > room_.bytes() / 2 || under_way() >= may_have())
    return;
  for (const auto& [peer, seat] : std::exchange(refused_full_, {}))
    context_.links.send(seat, make_frame(MessageKind::kCredit, wire::Credit()));
}

// ---- Reads --------------------------------------------------------------------------------------

TaskPtr Admission::find(const AttemptId& id) const {
  const auto task = tasks_.find(id);
  return task == tasks_.end() ? nullptr : task->second;
}

std::vector<TaskPtr> Admission::tasks() const {
  std::vector<TaskPtr> tasks;
  for (const auto& [id, task] : tasks_) tasks.push_back(task);
  return tasks;
}

void Admission::check_invariants() const {
  std::uint64_t bytes = 0;
  for (const auto& [id, task] : tasks_) {
    SWARMLINE_CHECK(task->id == id && task->state != TaskState::kOver);
    bytes += task->admitted_bytes;
  }
  SWARMLINE_CHECK(bytes == admitted_bytes_);
  for (const auto& [phase, held] : held_)
    for (const TaskPtr& task : held)
      SWARMLINE_CHECK(task->state == TaskState::kOver || find(task->id) == task);
  for (const auto& [id, waiting] : wait_for_room_) SWARMLINE_CHECK(find(id) == waiting.first);
}

}  // namespace swarmline
