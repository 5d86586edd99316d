// Which way the payloads of a connection go, where that is measured (bulk_trial.h).
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/net/bulk/bulk_connection.h"

namespace swarmline {
namespace {

double mib(double bytes) {
  return bytes / static_cast<double>(kMiB);
}

}  // namespace

// None, 0: before the other end has said who it is, nothing is taken of it.
std::uint16_t BulkConnection::kind_for_trials() const {
  if (!shared_->policy.measures || is_stranger_) return 0;
  for (std::uint16_t kind = 1; kind <= kBulkKindMax; ++kind)
    if (bounds_.room(kind).payload_bytes_max >= kBulkTrialBytesMax) return kind;
  return 0;
}

bool BulkConnection::is_measuring() const {
  return trials_ && !trials_->verdict();
}

bool BulkConnection::goes_over_link() const {
  return link_ && !is_measuring() && (!measured_ || measured_->way != PayloadWay::kFrames);
}

// The link is here. One connection measures it; until its verdict is there others to that host use
// their links, as all do where nothing is measured.
void BulkConnection::choose_way() {
  const auto between = path();
  if (own_trial_kind_ != 0 && their_trial_kind_ != 0 && between)
    measured_ = shared_->measured_on(way_, *between);
  const std::uint64_t most = std::min(shared_->options.queue_bytes_max, bounds_.unsent_bytes_max);
  if (!measured_ || measured_->way || measured_->is_under_way || most <= 2 * kBulkTrialBytesMax) {
    if (goes_over_link())
      log(LogLevel::kDebug, "payloads with {} go over {}", remote(), way_);
    else
      log(LogLevel::kDebug, "payloads with {} stay with their frames: {} was slower to that host",
          remote(), way_);
    return;
  }
  measured_->is_under_way = true;
  const BulkBackend* const backend = shared_->find(way_);
  trials_.emplace(
      BulkTrialRules{.must_be_faster = backend != nullptr && backend->goes_as_connection()});
  trial_pauses_left_ = kBulkTrialsTime / kBulkTrialPause;
  watch_trials();
  try_next();
}

// Pauses are counted, and not time: a process that was stopped has not waited for an answer.
void BulkConnection::watch_trials() {
  trial_timer_ = shared_->runtime.call_after(kBulkTrialPause, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || !self->is_measuring()) return;
    if (--self->trial_pauses_left_ > 0) {
      self->watch_trials();
      return self->try_next();
    }
    self->trials_->give_up();
    self->decide();
  });
}

// What waits to be sent would be measured with it. So nothing of this end's is before it, and it
// may leave by the rules for any other payload.
void BulkConnection::try_next() {
  if (!is_measuring() || is_over() || beneath_ended_ || unsent_bytes() > 0) return;
  const auto trial = trials_->next();
  if (!trial) return;
  if (trial_payload_.size() != trial->bytes) trial_payload_ = bulk_trial_payload(trial->bytes);
  Frame frame{.kind = their_trial_kind_,
              .request = trial->number,
              .flags = kFrameFlagBulkTrial,
              .meta = {},
              .payload = {trial_payload_}};
  ++shared_->counters.trials_sent;
  trials_->left(shared_->runtime.now());
  if (trial->way == PayloadWay::kLink) return pass_over_link(std::move(frame));
  pass_beneath(std::move(frame));
}

// False: it was an answer, or it is none that is taken, and the connection ends.
bool BulkConnection::admit_trial(const Frame& frame) {
  if ((frame.flags & kFrameFlagReply) != 0) {
    hear_answer(frame.request);
    return false;
  }
  std::uint64_t bytes = frame.payload_bytes();
  if ((frame.flags & kFrameFlagBulk) != 0) {
    const auto ticket = parse_bulk_ticket(frame.received_payload());
    if (!ticket) return end_for(ticket.error().what);
    bytes = ticket->payload_bytes;
  }
  if (own_trial_kind_ == 0) return end_for("a trial came where none is taken");
  const auto taken = trials_taken_.take(frame.request, bytes);
  return taken || end_for(taken.error().what);
}

void BulkConnection::answer_trial(const Frame& trial) {
  if (beneath_ended_) return;
  pass_beneath({.kind = trial.kind,
                .request = trial.request,
                .flags = kFrameFlagBulkTrial | kFrameFlagReply,
                .meta = {},
                .payload = {}});
}

void BulkConnection::hear_answer(std::uint64_t number) {
  const bool measured = is_measuring();
  const Result<void> heard =
      trials_ ? trials_->answered(number, shared_->runtime.now())
              : fail(ErrorCode::kCorrupt, "an answer came where nothing is tried");
  if (!heard) {
    end_for(heard.error().what);
    return;
  }
  if (!measured) return;
  if (trials_->verdict()) return decide();
  try_next();
}

// What was not measured is of this connection alone: the other process may have stood still.
void BulkConnection::decide() {
  const BulkVerdict verdict = *trials_->verdict();
  shared_->runtime.cancel(trial_timer_);
  trial_payload_ = {};
  measured_->is_under_way = false;
  if (verdict.is_measured) {
    ++shared_->counters.links_measured;
    shared_->counters.links_slower += verdict.way == PayloadWay::kFrames ? 1 : 0;
  } else {
    measured_ = std::make_shared<BulkDoor::Measured>();
  }
  measured_->way = verdict.way;
  measured_->until = shared_->runtime.now() + kBulkMeasuredLife;
  const double frames = mib(verdict.frames_rate), link = mib(verdict.link_rate);
  if (verdict.way == PayloadWay::kFrames) {
    log(trials_->rules().must_be_faster ? LogLevel::kDebug : LogLevel::kInfo,
        "payloads with {} stay with their frames: {:.0f} MiB/s, {:.0f} MiB/s over {}{}", remote(),
        frames, link, way_, verdict.is_measured ? "" : ", which did not answer in time");
  } else {
    log(LogLevel::kDebug,
        "payloads with {} go over {}: {:.0f} MiB/s, {:.0f} MiB/s with their frames{}", remote(),
        way_, link, frames, verdict.is_measured ? "" : ", which left no time for all trials");
  }
}

// Without a verdict: the next connection to that host measures.
void BulkConnection::stop_measuring() {
  if (!is_measuring()) return;
  shared_->runtime.cancel(trial_timer_);
  trial_payload_ = {};
  trials_->give_up();  // an answer may still come
  measured_->is_under_way = false;
  measured_ = nullptr;
}

}  // namespace swarmline
