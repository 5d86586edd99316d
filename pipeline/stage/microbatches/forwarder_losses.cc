// Links and peers that are lost, links that can't be had, and what the others cost.
#include <algorithm>
#include <utility>

#include "base/marks.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/stage/microbatches/forwarder.h"

namespace swarmline {
namespace {

constexpr Duration kArrivalMin = std::chrono::nanoseconds(1);
constexpr Duration kArrivalMax = std::chrono::hours(1);

}  // namespace

// ---- Losses -------------------------------------------------------------------------------------

void Forwarder::on_stall(const Seat& stalled, const AttemptId& id) {
  // The reporter knows the attempt by the name it left the stalled peer with; ours may differ.
  std::vector<TaskPtr> sent_there;
  for (const auto& [outgoing_id, task] : outgoing_)
    if (outgoing_id.microbatch == id.microbatch && task->next == stalled)
      sent_there.push_back(task);
  for (const TaskPtr& task : sent_there) resend(task, Why::kStalled);
}

void Forwarder::on_link_lost(const Seat& peer) {
  std::vector<TaskPtr> waiting;
  for (const auto& [id, task] : outgoing_)
    if (task->next == peer && task->state == TaskState::kDownstream) waiting.push_back(task);
  clock_.on_link_lost(peer.peer);
  next_.undialled(peer);
  // The word that would end a ban, or the credit we wait for, may have been lost with the link.
  next_.wiring().on_credit(peer.peer);
  std::deque<TaskPtr> seeking;
  seeking.swap(seeking_);
  for (const TaskPtr& task : waiting) resend(task, Why::kLinkLost);
  for (const TaskPtr& task : seeking) seeking_.push_back(task);
  if (!seeking_.empty()) retry_seeking_after(knobs().relink_delay);
}

void Forwarder::on_peer_lost(const Seat& lost, const std::vector<TaskPtr>& tasks) {
  if (next_.remove(lost)) clock_.forget(lost.peer);
  std::vector<TaskPtr> waiting;
  for (const TaskPtr& task : tasks) {
    std::erase(task->tried, lost.peer);
    if (is_over_with(task->next, lost) && task->state == TaskState::kDownstream)
      waiting.push_back(task);
  }
  for (const TaskPtr& task : waiting) resend(task, Why::kPeerLost);
}

// ---- Links that can't be had --------------------------------------------------------------------

void Forwarder::on_link_news(const Seat& peer, LinkNews news) {
  switch (news) {
    case LinkNews::kMade:
      if (!next_.back(peer)) return;
      SWARMLINE_MARK("forwarder.link_is_there_after_all");
      return retry_seeking();
    case LinkNews::kLate:
      return on_late_link(peer);
    case LinkNews::kNone:
      if (const auto pause = next_.pause_for(peer)) {
        SWARMLINE_MARK("forwarder.left_out");
        context_.runtime.call_after(*pause, guard_.wrap([this, peer] { try_link(peer); }));
      }
  }
}

// What waits for that link need not, where another peer is there that can be had.
void Forwarder::on_late_link(const Seat& peer) {
  if (!next_.leave_out(peer) || !next_.is_out(peer.peer)) return;
  std::vector<TaskPtr> waiting;
  for (const auto& [id, task] : outgoing_)
    if (task->next == peer && task->state == TaskState::kDownstream) waiting.push_back(task);
  for (const TaskPtr& task : waiting) {
    SWARMLINE_MARK("forwarder.did_not_wait_for_a_link");
    resend(task, Why::kLateLink);
  }
  retry_seeking();
}

// Without a microbatch that would wait for it.
void Forwarder::try_link(const Seat& peer) {
  if (!next_.pause_over(peer) || context_.links.reach(peer)) return;
  next_.back(peer);
  retry_seeking();
}

// ---- What links cost ----------------------------------------------------------------------------

void Forwarder::on_returned(const Seat& from, Duration over) {
  next_.wiring().on_returned(from.peer, charged(from, over));
}

// What came at once is measured, too; a peer may say what it likes.
Duration Forwarder::charged(const Seat& from, Duration over) const {
  const Duration measured = std::clamp<Duration>(over, kArrivalMin, kArrivalMax);
  return context_.links.is_relayed(from) ? kRelayCrossings * measured : measured;
}

}  // namespace swarmline
