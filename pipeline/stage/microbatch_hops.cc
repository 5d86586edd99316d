// The way on of a computed microbatch: which peer takes it, what it answers, and what is done when
// it does not answer.

#include <algorithm>
#include <utility>

#include "engine/base/limits.h"
#include "engine/base/log.h"
#include "pipeline/stage/microbatch_flow.h"

namespace swarmline {

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
    if (auto self = weak.lock()) (*self)->resend(task, Why::kStalled);
  });
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
    wire::Cancel cancel;
    *cancel.mutable_id() = to_wire(task->outgoing);
    send_next(old, task->id.microbatch.phase, make_frame(MessageKind::kCancel, cancel));
  }
  settle_hop(task);
  outgoing_.erase(task->outgoing);
  stale_outgoing_[task->outgoing] = {task, old.peer};
  task->outgoing.attempt = new_attempt();
  if (why == Why::kPeerLost) {
    --task->sends;  // no fault of the microbatch
  } else {
    task->tried.push_back(old.peer);
    if (task->sends >= Limits::attempts_per_microbatch_max)
      return compute_failed(
          task, {ErrorCode::kDeadline, fmt::format("sent on {} times, and nobody took it; {} last",
                                                   task->sends, to_string(old))});
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
  task->state = TaskState::kSeeking;
  task->rests = true;
  seeking_.push_back(task);
  std::weak_ptr<MicrobatchFlow*> weak = alive_;
  context_.runtime.call_after(kRelinkDelay * (1 << (task->sends - 1)), [weak, task] {
    auto self = weak.lock();
    if (!self) return;
    task->rests = false;
    if (task->state == TaskState::kSeeking && !task->cancelled) (*self)->retry_seeking();
  });
}

void MicrobatchFlow::arm_relink() {
  if (std::exchange(relink_armed_, true)) return;
  std::weak_ptr<MicrobatchFlow*> weak = alive_;
  context_.runtime.call_after(kRelinkDelay, [weak] {
    auto self = weak.lock();
    if (!self) return;
    (*self)->relink_armed_ = false;
    (*self)->retry_seeking();
  });
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
      resend(task, Why::kBroken);
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
  for (const TaskPtr& task : sent_there) resend(task, Why::kStalled);
}

void MicrobatchFlow::on_link_lost(const Seat& peer) {
  early_.drop(peer.peer);
  std::vector<TaskPtr> waiting;
  for (const auto& [id, task] : outgoing_)
    if (task->next == peer && task->state == TaskState::kDownstream) waiting.push_back(task);
  // The word that would end a ban, or the credit we wait for, may have been lost with the link.
  wiring_.on_credit(peer.peer);
  std::deque<TaskPtr> seeking;
  seeking.swap(seeking_);
  for (const TaskPtr& task : waiting) resend(task, Why::kLinkLost);
  for (const TaskPtr& task : seeking) seeking_.push_back(task);
  if (!seeking_.empty()) arm_relink();
  order_.lift();
  go_on_in_order();
}

void MicrobatchFlow::on_peer_lost(const Seat& lost) {
  if (auto next = next_seats_.find(lost.peer); next != next_seats_.end() && next->second == lost) {
    next_seats_.erase(next);
    wiring_.remove(lost.peer);
  }
  refused_full_.erase(lost.peer);
  early_.drop(lost.peer);
  std::erase_if(awaiting_arrival_, [&](const auto& entry) {
    if (entry.second->upstream != lost) return false;
    context_.runtime.cancel(entry.second->arrival_timer);
    return true;
  });
  std::vector<TaskPtr> waiting;
  for (const auto& [id, task] : tasks_) {
    task->orphan |= task->upstream == lost;
    std::erase(task->tried, lost.peer);
    if (task->next == lost && task->state == TaskState::kDownstream) waiting.push_back(task);
  }
  for (const TaskPtr& task : waiting) resend(task, Why::kPeerLost);
  order_.lift();
  retry_seeking();
  go_on_in_order();
}

void MicrobatchFlow::retry_seeking() {
  std::deque<TaskPtr> waiting;
  waiting.swap(seeking_);
  for (const TaskPtr& task : waiting) {
    if (task->state != TaskState::kSeeking || task->cancelled) continue;
    // Whoever it has not tried may be gone.
    if (tried_all(*task)) {
      if (task->rests) {
        seeking_.push_back(task);
        continue;
      }
      task->tried.clear();
    }
    send_on(task);
  }
}

}  // namespace swarmline
