// The way on of a computed microbatch: which peer takes it, what it answers, and what is done when
// it does not answer.

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/stage/microbatches/microbatch_flow.h"

namespace swarmline {

std::optional<Seat> MicrobatchFlow::pick_next(const MicrobatchId& microbatch,
                                              const std::vector<PeerId>& exclude, bool late) {
  const auto picked =
      late ? wiring_.pick_soonest(microbatch, exclude) : wiring_.pick(microbatch, exclude);
  if (!picked) return std::nullopt;
  if (const auto next = next_seats_.find(*picked); next != next_seats_.end()) return next->second;
  wiring_.on_settled(*picked);
  return std::nullopt;
}

void MicrobatchFlow::send_on(const TaskPtr& task) {
  // Any try but the first is one that the step waits for.
  const bool late = task->outgoing.attempt.value != 0;
  if (const auto next = pick_next(task->id.microbatch, task->tried, late))
    return send_to(task, *next);
  task->state = TaskState::kSeeking;
  seeking_.push_back(task);
}

void MicrobatchFlow::send_to(const TaskPtr& task, const Seat& next) {
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
  send_next(task->next, task->id.microbatch.phase, std::move(frame), task->targets_wire.size());
  wiring_.on_sent(task->next.peer, Duration{});
  begin_leg(task, HopClock::Leg::kForward);
}

void MicrobatchFlow::begin_leg(const TaskPtr& task, HopClock::Leg leg) {
  task->hop_began = context_.runtime.now();
  clock_.begin(task->outgoing, task->next.peer, leg, task->hop_began);
  arm_hop_timer(task);
}

// Fires when the leg is late; once it is, now and then until it is given up.
void MicrobatchFlow::arm_hop_timer(const TaskPtr& task) {
  context_.runtime.cancel(task->hop_timer);
  const Instant now = context_.runtime.now();
  Instant due = task->hop_began + clock_.timeout();
  if (may_be_passed_by(*task)) {
    const Instant late = task->hop_began + clock_.patience(task->outgoing);
    due = std::min(due, late > now ? late : now + knobs().hop_late_min);
  }
  std::weak_ptr<MicrobatchFlow*> weak = alive_;
  task->hop_timer = context_.runtime.call_at(due, [weak, task, due] {
    if (auto self = weak.lock()) (*self)->on_hop_timer(task, due);
  });
}

void MicrobatchFlow::on_hop_timer(const TaskPtr& task, Instant due) {
  if (task->state != TaskState::kDownstream || task->cancelled) return;
  const Instant now = context_.runtime.now();
  if (now >= task->hop_began + clock_.timeout()) return resend(task, Why::kStalled);
  if (clock_.is_late(task->outgoing, now - task->hop_began, now - due) && pass_by(task)) return;
  arm_hop_timer(task);
}

// Of a microbatch that was sent more than once the swarm has seen enough.
bool MicrobatchFlow::may_be_passed_by(const MicrobatchTask& task) const {
  return free_routes_ && !task.passed_by && task.sends == 1;
}

// The early second try; false: nobody can take it now, or that peer was passed by often enough.
bool MicrobatchFlow::pass_by(const TaskPtr& task) {
  const Seat slow = task->next;
  if (!may_be_passed_by(*task) || !clock_.may_pass(task->outgoing)) return false;
  std::vector<PeerId> exclude = task->tried;
  exclude.push_back(slow.peer);
  const auto next = pick_next(task->id.microbatch, exclude, true);
  if (!next) return false;
  const Duration waited = context_.runtime.now() - task->hop_began;
  log(LogLevel::kInfo, "{} has been slow with {} for {:.1f} s; {} gets it too", to_string(slow),
      to_string(task->id.microbatch), to_seconds(waited), to_string(*next));
  if (context_.metrics) context_.metrics->counter("swarmline_early_second_tries").add();
  wiring_.on_timeout(slow.peer, waited);
  cancel_next(slow, task->outgoing);
  clock_.supersede(task->outgoing);
  supersede(task);
  task->tried = std::move(exclude);
  task->passed_by = true;
  --task->sends;  // no failed attempt
  send_to(task, *next);
  return true;
}

void MicrobatchFlow::cancel_next(const Seat& next, const AttemptId& id) {
  wire::Cancel cancel;
  *cancel.mutable_id() = to_wire(id);
  send_next(next, id.microbatch.phase, make_frame(MessageKind::kCancel, cancel));
}

// Ends the attempt that is on its way; the next one has another name.
void MicrobatchFlow::supersede(const TaskPtr& task) {
  settle_hop(task);
  outgoing_.erase(task->outgoing);
  stale_outgoing_[task->outgoing] = {task, task->next.peer};
  task->outgoing.attempt = new_attempt();
}

void MicrobatchFlow::settle_hop(const TaskPtr& task) {
  context_.runtime.cancel(task->hop_timer);
  task->hop_timer = {};
  if (std::exchange(task->hop_open, false)) wiring_.on_settled(task->next.peer);
}

bool MicrobatchFlow::tried_all(const MicrobatchTask& task) const {
  return std::all_of(next_seats_.begin(), next_seats_.end(), [&](const auto& entry) {
    return std::find(task.tried.begin(), task.tried.end(), entry.first) != task.tried.end();
  });
}

void MicrobatchFlow::resend(const TaskPtr& task, Why why) {
  if (task->state != TaskState::kDownstream || task->cancelled) return;
  const Seat old = task->next;
  if (why == Why::kStalled) {
    log(LogLevel::kWarn, "{} did not answer for {} in time; sending it to another peer",
        to_string(old), to_string(task->id.microbatch));
    wiring_.on_timeout(old.peer, from_seconds(context_.config.wiring.hop_timeout_seconds));
    wire::StallReport stall;
    *stall.mutable_seat() = to_wire(context_.self);
    *stall.mutable_stalled() = to_wire(old);
    *stall.mutable_id() = to_wire(task->outgoing);
    context_.notify_coordinator(make_frame(MessageKind::kStallReport, stall));
    cancel_next(old, task->outgoing);
    clock_.supersede(task->outgoing);
  } else {
    clock_.drop(task->outgoing);
  }
  supersede(task);
  if (why == Why::kPeerLost) {
    --task->sends;  // no fault of the microbatch
  } else {
    task->tried.push_back(old.peer);
    // More may go at once than there are tries: lost links count when all candidates' are.
    if (why == Why::kLinkLost && !tried_all(*task)) --task->sends;
    if (task->sends >= Limits::attempts_per_microbatch_max) {
      if (led_)
        return compute_failed(task, {ErrorCode::kDeadline,
                                     fmt::format("sent on {} times, and nobody took it; {} last",
                                                 task->sends, to_string(old))});
      --task->sends;
      return try_all_again_later(task);
    }
  }
  if (tried_all(*task)) {
    // Everybody is worth another try; but a link that is broken or damages what passes needs a
    // moment, or its end is being found out.
    if (why == Why::kLinkLost || why == Why::kBroken) return try_all_again_later(task);
    task->tried.clear();
    if (next_seats_.size() > 1) task->tried = {old.peer};
  }
  send_on(task);
}

// Pauses double: all of them together outlast the longest silence that makes a peer lost. A
// newcomer gets it at once.
void MicrobatchFlow::try_all_again_later(const TaskPtr& task) {
  const Duration pause = knobs().relink_delay * (1 << (task->sends - 1));
  task->state = TaskState::kSeeking;
  task->rests_until = context_.runtime.now() + pause;
  seeking_.push_back(task);
  retry_seeking_after(pause);
}

void MicrobatchFlow::retry_seeking_after(Duration pause) {
  std::weak_ptr<MicrobatchFlow*> weak = alive_;
  context_.runtime.call_after(pause, [weak] {
    if (auto self = weak.lock()) (*self)->retry_seeking();
  });
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
  clock_.end(id, from.peer, context_.runtime.now());
  const TaskPtr task = outgoing(id, from);
  if (!task || task->state != TaskState::kDownstream || task->outgoing != id) return {};
  if (!task->train()) {
    finish(task);
  } else if (task->next.stage.value + 1U == context_.stage.stages) {
    // The last stage has its gradient at once and is at work on it.
    begin_leg(task, HopClock::Leg::kBackward);
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
  if (task && task->state == TaskState::kDownstream && task->outgoing == id)
    begin_leg(task, HopClock::Leg::kBackward);
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
      clock_.drop(id);
      --task->sends;
      send_on(task);
      break;
    case wire::Refused::BROKEN:
    case wire::Refused::FENCED:
      resend(task, Why::kBroken);
      break;
    default:  // RETIRED: that peer is ahead; our own retirement is on its way, or else the timer is
      clock_.drop(id);
      task->hop_began = context_.runtime.now();
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
  for (const TaskPtr& task : sent_there) resend(task, Why::kStalled);
}

void MicrobatchFlow::on_link_lost(const Seat& peer) {
  early_.drop(peer.peer);
  std::vector<TaskPtr> waiting;
  for (const auto& [id, task] : outgoing_)
    if (task->next == peer && task->state == TaskState::kDownstream) waiting.push_back(task);
  clock_.on_link_lost(peer.peer);
  // The word that would end a ban, or the credit we wait for, may have been lost with the link.
  wiring_.on_credit(peer.peer);
  std::deque<TaskPtr> seeking;
  seeking.swap(seeking_);
  for (const TaskPtr& task : waiting) resend(task, Why::kLinkLost);
  for (const TaskPtr& task : seeking) seeking_.push_back(task);
  if (!seeking_.empty()) retry_seeking_after(knobs().relink_delay);
  order_.lift();
  go_on_in_order();
}

void MicrobatchFlow::on_peer_lost(const Seat& lost) {
  if (auto next = next_seats_.find(lost.peer);
      next != next_seats_.end() && is_over_with(next->second, lost)) {
    next_seats_.erase(next);
    wiring_.remove(lost.peer);
    clock_.forget(lost.peer);
  }
  std::erase_if(refused_full_, [&](const auto& entry) { return is_over_with(entry.second, lost); });
  early_.drop(lost.peer);
  std::erase_if(awaiting_arrival_, [&](const auto& entry) {
    if (!is_over_with(entry.second->upstream, lost)) return false;
    context_.runtime.cancel(entry.second->arrival_timer);
    return true;
  });
  std::vector<TaskPtr> waiting;
  for (const auto& [id, task] : tasks_) {
    task->orphan |= is_over_with(task->upstream, lost);
    std::erase(task->tried, lost.peer);
    if (is_over_with(task->next, lost) && task->state == TaskState::kDownstream)
      waiting.push_back(task);
  }
  for (const TaskPtr& task : waiting) resend(task, Why::kPeerLost);
  order_.lift();
  retry_seeking();
  go_on_in_order();
}

// Without a coordinator nobody says who is lost, and no claim is answered: what was tried in vain
// meanwhile is no fault of the microbatch.
void MicrobatchFlow::set_led(bool led) {
  led_ = led;
  if (!led_) return;
  for (const auto& [id, task] : tasks_) task->sends = std::min(task->sends, 1U);
}

// What a seeking task waits for always ends with a call of this: room at a candidate (its credit, a
// hop that is settled), a ban (the answer to the cancel that came with it), a rest (its timer), no
// candidate (the next membership); and a lost link ends the first two, a lost peer all.
void MicrobatchFlow::retry_seeking() {
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

}  // namespace swarmline
