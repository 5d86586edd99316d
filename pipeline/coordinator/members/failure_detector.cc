#include "pipeline/coordinator/members/failure_detector.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/marks.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

namespace {
constexpr int kStoppedGaps = 3;  // of a peer's usual gaps between heartbeats: it was stopped
// Where all others are as silent as one that is silent for too long, it is not they.
constexpr int kSilenceShare = 2;
}  // namespace

FailureDetector::FailureDetector(const NetSection& net, double hop_timeout_seconds)
    : period_(from_seconds(net.heartbeat_seconds)),
      configured_silence_(from_seconds(net.peer_silence_seconds)),
      hop_timeout_(from_seconds(hop_timeout_seconds)) {}

FailureDetector::Pulse* FailureDetector::find(const Seat& seat) {
  const auto found = pulses_.find(seat.peer);
  return found != pulses_.end() && found->second.seat == seat ? &found->second : nullptr;
}

// ---- What is heard ------------------------------------------------------------------------------

void FailureDetector::watch(const Seat& seat, Instant now) {
  pulses_[seat.peer] = {.seat = seat, .last_heard = now, .progress = now, .moved = now};
}

void FailureDetector::forget(PeerId peer) {
  pulses_.erase(peer);
}

void FailureDetector::heard(const Seat& seat, Instant now) {
  if (Pulse* pulse = find(seat)) pulse->last_heard = now;
}

void FailureDetector::heartbeat(const Seat& seat, std::uint64_t jobs_done,
                                std::uint64_t jobs_waiting, Instant now) {
  Pulse* pulse = find(seat);
  if (pulse == nullptr) return;
  if (pulse->last_beat != Instant{}) {
    const Duration gap = now - pulse->last_beat;
    if (pulse->gap_mean == Duration{}) pulse->gap_mean = gap;
    // Stopped, not stuck: its device could do nothing either.
    if (gap > kStoppedGaps * pulse->gap_mean) pulse->progress = now;
    const Duration off = gap > pulse->gap_mean ? gap - pulse->gap_mean : pulse->gap_mean - gap;
    pulse->gap_deviation += (off - pulse->gap_deviation) / 4;
    pulse->gap_mean += (gap - pulse->gap_mean) / 8;
  }
  pulse->last_heard = pulse->last_beat = now;
  const bool ended = jobs_done != pulse->jobs_done;
  if (ended || jobs_waiting == 0) pulse->progress = now;
  if (ended || jobs_waiting != 0) pulse->worked = now;
  pulse->jobs_done = jobs_done;
}

void FailureDetector::moved(const Seat& seat, std::uint64_t bytes, Instant now) {
  Pulse* pulse = find(seat);
  if (pulse != nullptr && std::exchange(pulse->moved_bytes, bytes) != bytes) pulse->moved = now;
}

void FailureDetector::begins_to_fetch(PeerId peer, Instant now) {
  if (const auto found = pulses_.find(peer); found != pulses_.end()) found->second.moved = now;
}

Instant FailureDetector::moved_at(PeerId peer) const {
  const auto found = pulses_.find(peer);
  return found == pulses_.end() ? Instant{} : found->second.moved;
}

Instant FailureDetector::got_on_at(PeerId peer) const {
  const auto found = pulses_.find(peer);
  if (found == pulses_.end()) return Instant{};
  const Pulse& pulse = found->second;
  const bool stuck = pulse.last_beat - pulse.progress > stuck_time();
  return stuck ? pulse.moved : std::max(pulse.moved, pulse.worked);
}

void FailureDetector::works_from(const Seat& seat, Instant now) {
  Pulse* pulse = find(seat);
  if (pulse == nullptr) return;
  pulse->works = true;
  pulse->progress = now;
}

// ---- What follows -------------------------------------------------------------------------------

Duration FailureDetector::silence_allowed() const {
  if (configured_silence_ != Duration{}) return configured_silence_;
  return std::chrono::duration_cast<Duration>(period_ * kSilentPeriods);
}

std::vector<Seat> FailureDetector::silent(Instant now) const {
  const Duration least = silence_allowed();
  std::vector<Seat> seats;
  for (const auto& [peer, pulse] : pulses_) {
    Duration allowed = least;
    if (configured_silence_ == Duration{})
      allowed = std::max(least, std::min(pulse.gap_mean + 8 * pulse.gap_deviation,
                                         std::max(knobs().silence_max, least)));
    if (now - pulse.last_heard > allowed) seats.push_back(pulse.seat);
  }
  return seats;
}

Duration FailureDetector::silence(const Seat& seat, Instant now) const {
  return now - pulses_.at(seat.peer).last_heard;
}

bool FailureDetector::hears_nobody(const std::vector<Seat>& silent, Instant now) const {
  Duration longest{};
  for (const Seat& seat : silent) longest = std::max(longest, silence(seat, now));
  const bool nobody = !silent.empty() && std::ranges::all_of(pulses_, [&](const auto& entry) {
    return now - entry.second.last_heard > longest / kSilenceShare;
  });
  if (nobody) SWARMLINE_MARK("failure_detector.hears_nobody");
  return nobody;
}

Duration FailureDetector::stuck_time() const {
  return std::max<Duration>(knobs().stuck_hop_timeouts * hop_timeout_,
                            knobs().stuck_heartbeats * period_);
}

std::vector<Seat> FailureDetector::stuck() const {
  std::vector<Seat> seats;
  for (const auto& [peer, pulse] : pulses_)
    if (pulse.works && pulse.last_beat - pulse.progress > stuck_time()) seats.push_back(pulse.seat);
  return seats;
}

// ---- Its own looks ------------------------------------------------------------------------------

Instant FailureDetector::next_look(Instant now) {
  expected_look_ = now + period_ / static_cast<std::int64_t>(knobs().looks_per_heartbeat);
  return expected_look_;
}

bool FailureDetector::overslept(Instant now) const {
  return now - expected_look_ > period_;
}

bool FailureDetector::was_stopped(Instant now) const {
  return overslept(now) || now < held_up_until_;
}

void FailureDetector::is_held_up(Instant now) {
  held_up_until_ = now + period_;
  for (auto& [peer, pulse] : pulses_) {
    if (pulse.last_beat != Instant{}) continue;
    SWARMLINE_MARK("failure_detector.not_told_yet");
    pulse.last_heard = pulse.moved = now;
  }
}

void FailureDetector::restart_deadlines(Instant now) {
  SWARMLINE_MARK("failure_detector.deadlines_restarted");
  for (auto& [peer, pulse] : pulses_) {
    pulse.last_heard = pulse.progress = pulse.moved = now;
    pulse.last_beat = Instant{};  // this gap was ours
  }
}

void FailureDetector::check_invariants() const {
  for (const auto& [peer, pulse] : pulses_) SWARMLINE_CHECK(pulse.seat.peer == peer);
}

}  // namespace swarmline
