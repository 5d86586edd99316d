#include "pipeline/stage/microbatches/forwarder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/marks.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

Forwarder::Forwarder(StageContext& context, const PhaseBook& phases, BoundaryTraffic& traffic,
                     std::unique_ptr<Wiring> wiring, Hooks hooks)
    : context_(context),
      phases_(phases),
      traffic_(traffic),
      next_(std::move(wiring)),
      hooks_(std::move(hooks)),
      free_routes_(context_.config.pipeline.wiring != WiringKind::kStatic),
      clock_(from_seconds(context_.config.wiring.hop_timeout_seconds)),
      hedges_(context_.config.wiring.hedge_share,
              context_.config.microbatches_per_step() * way_share()) {}

Forwarder::~Forwarder() {
  for (auto& [id, task] : outgoing_) context_.runtime.cancel(task->hop_timer);
}

void Forwarder::set_candidates(const std::vector<NextStage::Candidate>& candidates) {
  for (const PeerId gone : next_.set(candidates)) clock_.forget(gone);
}

// ---- Sending ------------------------------------------------------------------------------------

void Forwarder::send_on(const TaskPtr& task) {
  if (!std::exchange(task->earned, true)) hedges_.earn(way_share());
  // Any try but the first is one that the step waits for.
  const bool late = task->outgoing.attempt.value != 0;
  if (const auto next = next_.pick(task->id.microbatch, task->tried, late))
    return send_to(task, *next);
  task->state = TaskState::kSeeking;
  seeking_.push_back(task);
}

void Forwarder::send_to(const TaskPtr& task, const Seat& next) {
  task->state = TaskState::kDownstream;
  task->next = next;
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
  forward.set_opening(task->epoch.value);
  Frame frame = make_frame(MessageKind::kForward, forward, {task->output});
  traffic_.send_next(task->next, task->id.microbatch.phase, std::move(frame),
                     task->targets_wire.size());
  begin_leg(task, HopClock::Leg::kForward);
}

void Forwarder::retry_seeking_after(Duration pause) {
  context_.runtime.call_after(pause, guard_.wrap([this] { retry_seeking(); }));
}

// What a seeking task waits for always ends with a call of this: room at a candidate (its credit, a
// hop that is settled), a ban (the answer to the cancel that came with it), a rest (its timer), no
// candidate (the next membership); and a lost link ends the first two, a lost peer all.
void Forwarder::retry_seeking() {
  const Instant now = context_.runtime.now();
  std::deque<TaskPtr> waiting;
  waiting.swap(seeking_);
  for (const TaskPtr& task : waiting) {
    if (task->state != TaskState::kSeeking || task->cancelled) continue;
    // Whoever it has not tried may be gone.
    if (tried_all(*task)) {
      if (now < task->rests_until) {
        seeking_.push_back(task);
        continue;
      }
      task->tried.clear();
    }
    send_on(task);
  }
}

// ---- The hop's timer ----------------------------------------------------------------------------

void Forwarder::begin_leg(const TaskPtr& task, HopClock::Leg leg) {
  task->hop_began = context_.runtime.now();
  clock_.begin(task->outgoing, task->next.peer, leg, task->hop_began);
  arm_hop_timer(task);
}

// Fires when the leg is late; once it is, now and then until it is given up.
void Forwarder::arm_hop_timer(const TaskPtr& task) {
  context_.runtime.cancel(task->hop_timer);
  const Instant now = context_.runtime.now();
  Instant due = task->hop_began + clock_.timeout(task->outgoing);
  if (may_be_passed_by(*task)) {
    const Instant late = task->hop_began + clock_.patience(task->outgoing);
    due = std::min(due, late > now ? late : now + knobs().hop_late_min);
  }
  task->hop_timer =
      context_.runtime.call_at(due, guard_.wrap([this, task, due] { on_hop_timer(task, due); }));
}

void Forwarder::on_hop_timer(const TaskPtr& task, Instant due) {
  if (task->state != TaskState::kDownstream || task->cancelled) return;
  const Instant now = context_.runtime.now();
  if (now >= task->hop_began + clock_.timeout(task->outgoing)) return resend(task, Why::kStalled);
  if (clock_.is_late(task->outgoing, now - task->hop_began, now - due) && pass_by(task)) return;
  arm_hop_timer(task);
}

void Forwarder::stop_hop_timer(const TaskPtr& task) {
  context_.runtime.cancel(task->hop_timer);
  task->hop_timer = {};
}

void Forwarder::settle(const TaskPtr& task) {
  stop_hop_timer(task);
  if (std::exchange(task->hop_open, false)) next_.wiring().on_settled(task->next.peer);
}

// ---- Second tries -------------------------------------------------------------------------------

// Of a microbatch that was sent more than once the swarm has seen enough.
bool Forwarder::may_be_passed_by(const MicrobatchTask& task) const {
  return free_routes_ && !task.passed_by && task.sends == 1;
}

// The early second try; false: nobody can take it now, or that peer was passed by often enough.
bool Forwarder::pass_by(const TaskPtr& task) {
  const Seat slow = task->next;
  if (!may_be_passed_by(*task) ||
      !clock_.may_pass(task->outgoing, phases_.version(task->id.microbatch.phase)))
    return false;
  if (!hedges_.has_one()) {
    SWARMLINE_MARK("forwarder.hedges_spent");
    return false;
  }
  std::vector<PeerId> exclude = task->tried;
  exclude.push_back(slow.peer);
  // Who is picked has one more in flight: it has to be sent there.
  const auto next = next_.pick(task->id.microbatch, exclude, true);
  if (!next) return false;
  hedges_.spend();
  SWARMLINE_MARK("forwarder.early_second_try");
  const Duration waited = context_.runtime.now() - task->hop_began;
  log(LogLevel::kInfo, "{} has been slow with {} for {:.1f} s; {} gets it too", to_string(slow),
      to_string(task->id.microbatch), to_seconds(waited), to_string(*next));
  if (context_.metrics) context_.metrics->counter("swarmline_early_second_tries").add();
  traffic_.tried_early(task->id.microbatch.phase);
  next_.wiring().on_timeout(slow.peer, waited);
  cancel_at(slow, task->outgoing);
  clock_.supersede(task->outgoing);
  supersede(task);
  task->tried = std::move(exclude);
  task->passed_by = true;
  --task->sends;  // no failed attempt
  send_to(task, *next);
  return true;
}

void Forwarder::cancel(const TaskPtr& task) {
  cancel_at(task->next, task->outgoing);
}

void Forwarder::cancel_at(const Seat& next, const AttemptId& id) {
  wire::Cancel cancel;
  *cancel.mutable_id() = to_wire(id);
  traffic_.send_next(next, id.microbatch.phase, make_frame(MessageKind::kCancel, cancel));
}

// Ends the attempt that is on its way; the next one has another name.
void Forwarder::supersede(const TaskPtr& task) {
  settle(task);
  outgoing_.erase(task->outgoing);
  stale_outgoing_[task->outgoing] = {task, task->next.peer};
  task->outgoing.attempt = resend_attempt(context_.self.peer, next_attempt_++);
}

bool Forwarder::tried_all(const MicrobatchTask& task) const {
  return next_.all_in(task.tried);
}

void Forwarder::report_stall(const TaskPtr& task, const Seat& stalled) {
  SWARMLINE_MARK("forwarder.stalled_hop_sent_again");
  log(LogLevel::kWarn, "{} did not answer for {} in time; sending it to another peer",
      to_string(stalled), to_string(task->id.microbatch));
  next_.wiring().on_timeout(stalled.peer, from_seconds(context_.config.wiring.hop_timeout_seconds));
  wire::StallReport stall;
  *stall.mutable_seat() = to_wire(context_.self);
  *stall.mutable_stalled() = to_wire(stalled);
  *stall.mutable_id() = to_wire(task->outgoing);
  context_.notify_coordinator(make_frame(MessageKind::kStallReport, stall));
  cancel_at(stalled, task->outgoing);
  clock_.supersede(task->outgoing);
}

void Forwarder::resend(const TaskPtr& task, Why why) {
  if (task->state != TaskState::kDownstream || task->cancelled) return;
  const Seat old = task->next;
  if (why == Why::kStalled)
    report_stall(task, old);
  else
    clock_.drop(task->outgoing);
  if (why == Why::kLateLink) cancel_at(old, task->outgoing);  // it may come after all
  supersede(task);
  if (why == Why::kPeerLost || why == Why::kLateLink) {
    if (why == Why::kPeerLost) SWARMLINE_MARK("forwarder.lost_peers_work_sent_again");
    --task->sends;  // no fault of the microbatch
  } else if (!count_failed_try(task, old, why)) {
    return;
  }
  if (tried_all(*task)) {
    // Everybody is worth another try; but a link that is broken or damages what passes needs a
    // moment, or its end is being found out.
    if (why == Why::kLinkLost || why == Why::kBroken) return try_all_again_later(task);
    task->tried.clear();
    if (next_.size() > 1) task->tried = {old.peer};
  }
  send_on(task);
}

// False: there are no more tries, or none for now.
bool Forwarder::count_failed_try(const TaskPtr& task, const Seat& old, Why why) {
  task->tried.push_back(old.peer);
  // More may go at once than there are tries: lost links count when all candidates' are.
  if (why == Why::kLinkLost) {
    SWARMLINE_MARK("forwarder.sent_again_after_link_loss");
    if (!tried_all(*task)) --task->sends;
  }
  const Instant now = context_.runtime.now();
  if (task->failing_since == Instant{}) task->failing_since = now;
  if (task->sends < Limits::attempts_in_quick_succession) return true;
  const Duration failing = now - task->failing_since;
  if (led_ && failing >= from_seconds(context_.config.net.outlast_seconds)) {
    SWARMLINE_MARK("forwarder.out_of_tries");
    hooks_.on_failed(task, {ErrorCode::kDeadline,
                            fmt::format("sent on for {:.0f} s, and nobody took it; {} last",
                                        to_seconds(failing), to_string(old))});
    return false;
  }
  if (led_)
    SWARMLINE_MARK("forwarder.tries_on");
  else
    SWARMLINE_MARK("forwarder.tries_on_without_coordinator");
  --task->sends;
  try_all_again_later(task);
  return false;
}

// Pauses double until there have been attempts_in_quick_succession, and stay as long from then on:
// the first of them together outlast the longest silence that makes a peer lost. A newcomer gets it
// at once.
void Forwarder::try_all_again_later(const TaskPtr& task) {
  const Duration pause = knobs().relink_delay * (1 << (task->sends - 1));
  task->state = TaskState::kSeeking;
  task->rests_until = context_.runtime.now() + pause;
  seeking_.push_back(task);
  retry_seeking_after(pause);
}

// ---- Answers ------------------------------------------------------------------------------------

TaskPtr Forwarder::outgoing(const AttemptId& id, const Seat& from) {
  next_.wiring().on_heard(from.peer);
  if (auto it = outgoing_.find(id); it != outgoing_.end())
    return it->second->next.peer == from.peer ? it->second : nullptr;
  if (auto it = stale_outgoing_.find(id); it != stale_outgoing_.end()) {
    SWARMLINE_MARK("forwarder.answer_of_a_given_up_try");
    return it->second.sent_to == from.peer ? it->second.task : nullptr;
  }
  return nullptr;
}

Result<void> Forwarder::on_forward_done(const Seat& from, const wire::ForwardDone& message) {
  const AttemptId id = from_wire(message.id());
  next_.wiring().on_sent(from.peer,
                         charged(from, Duration(static_cast<std::int64_t>(message.arrived_ns()))));
  next_.wiring().on_forward_done(from.peer,
                                 Duration(static_cast<std::int64_t>(message.service_ns())));
  clock_.end(id, from.peer, context_.runtime.now());
  clock_.on_stepped(from.peer, Version{message.stepped()});
  next_.wiring().on_backlog(from.peer, Duration(static_cast<std::int64_t>(message.waiting_ns())));
  const TaskPtr task = outgoing(id, from);
  if (!task || task->state != TaskState::kDownstream || task->outgoing != id) return {};
  if (!task->train()) {
    hooks_.on_end(task);
  } else if (task->next.stage.value + 1U == context_.stage.stages) {
    // The last stage has its gradient at once and is at work on it.
    begin_leg(task, HopClock::Leg::kBackward);
  } else {
    stop_hop_timer(task);
  }
  return {};
}

void Forwarder::on_gradient_arrived(const Seat& from, const AttemptId& id) {
  const TaskPtr task = outgoing(id, from);
  if (task && task->state == TaskState::kDownstream && task->outgoing == id)
    begin_leg(task, HopClock::Leg::kBackward);
}

TaskPtr Forwarder::on_gradient(const Seat& from, const wire::Gradient& message) {
  const AttemptId id = from_wire(message.id());
  wire::GradientArrived arrived;
  *arrived.mutable_id() = to_wire(id);
  traffic_.send_next(from, id.microbatch.phase, make_frame(MessageKind::kGradientArrived, arrived));
  next_.wiring().on_backward_done(from.peer,
                                  Duration(static_cast<std::int64_t>(message.service_ns())));
  clock_.end(id, from.peer, context_.runtime.now());
  clock_.on_stepped(from.peer, Version{message.stepped()});
  next_.wiring().on_backlog(from.peer, Duration(static_cast<std::int64_t>(message.waiting_ns())));
  const TaskPtr task = outgoing(id, from);
  const bool waits =
      task && (task->state == TaskState::kDownstream || task->state == TaskState::kSeeking);
  return waits ? task : nullptr;
}

void Forwarder::on_refused(const Seat& from, const wire::Refused& message) {
  const AttemptId id = from_wire(message.id());
  const TaskPtr task = outgoing(id, from);
  if (!task || task->state != TaskState::kDownstream || task->outgoing != id) return;
  switch (message.why()) {
    case wire::Refused::FULL:
      SWARMLINE_MARK("forwarder.refused_by_a_full_peer");
      context_.runtime.cancel(task->hop_timer);
      task->hop_open = false;  // on_full gives the pick back
      next_.wiring().on_full(from.peer);
      outgoing_.erase(id);
      clock_.drop(id);
      --task->sends;
      return send_on(task);
    case wire::Refused::BROKEN:
    case wire::Refused::FENCED:
      SWARMLINE_MARK("forwarder.broken_sent_again");
      return resend(task, Why::kBroken);
    default:  // RETIRED: that peer is ahead; our own retirement is on its way, or else the timer is
      clock_.drop(id);
      task->hop_began = context_.runtime.now();
      return arm_hop_timer(task);
  }
}

void Forwarder::on_credit(const Seat& from) {
  next_.wiring().on_credit(from.peer);
  retry_seeking();
}

// ---- Ends ---------------------------------------------------------------------------------------

// Without a coordinator nobody says who is lost, and no claim is answered: what was tried in vain
// meanwhile is no fault of the microbatch.
void Forwarder::set_led(bool led, const std::vector<TaskPtr>& tasks) {
  led_ = led;
  if (!led_) return;
  for (const TaskPtr& task : tasks) {
    task->sends = std::min(task->sends, 1U);
    task->failing_since = {};
  }
}

void Forwarder::on_over(const Phase& phase) {
  clock_.on_over(phase, context_.runtime.now());
  std::erase_if(seeking_, [&](const TaskPtr& task) { return task->id.microbatch.phase == phase; });
}

void Forwarder::leave(const TaskPtr& task) {
  settle(task);
  outgoing_.erase(task->outgoing);
  clock_.drop(task->outgoing);
  std::erase_if(stale_outgoing_, [&](const auto& entry) { return entry.second.task == task; });
}

void Forwarder::check_invariants() const {
  for (const auto& [id, task] : outgoing_)
    SWARMLINE_CHECK(task->outgoing == id && task->state != TaskState::kOver && task->sends > 0);
  for (const auto& [id, stale] : stale_outgoing_)
    SWARMLINE_CHECK(stale.task->outgoing != id && stale.task->state != TaskState::kOver);
  for (const TaskPtr& task : seeking_)
    SWARMLINE_CHECK(!task->hop_open || outgoing_.contains(task->outgoing));
}

}  // namespace swarmline
