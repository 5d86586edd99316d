#include "pipeline/coordinator/members/failure_detector.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "base/marks.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

namespace {
constexpr int kStoppedGaps = 3;  // of a peer's usual gaps between heartbeats: it was stopped
// Where all others are as silent as the one that got silent last, it is not they.
constexpr int kSilenceShare = 2;
constexpr double kLateShare = 0.1;
}  // namespace

FailureDetector::FailureDetector(const NetSection& net, double hop_timeout_seconds)
    : pace_(net),
      configured_silence_(from_seconds(net.peer_silence_seconds)),
      hop_timeout_(from_seconds(hop_timeout_seconds)) {}

FailureDetector::Pulse* FailureDetector::find(const Seat& seat) {
  const auto found = pulses_.find(seat.peer);
  return found != pulses_.end() && found->second.seat == seat ? &found->second : nullptr;
}

// ---- What is heard ------------------------------------------------------------------------------

void FailureDetector::watch(const Seat& seat, Instant now) {
  pulses_[seat.peer] = {
      .seat = seat, .last_heard = now, .period = pace_.usual(), .progress = now, .moved = now};
  pace_.count(pulses_.size());
}

void FailureDetector::forget(PeerId peer) {
  pulses_.erase(peer);
  pace_.count(pulses_.size());
}

void FailureDetector::heard_anybody(Instant now) {
  if (is_deaf(now)) deaf_until_ = now;
  heard_anybody_ = now;
}

void FailureDetector::heard(const Seat& seat, Instant now) {
  Pulse* pulse = find(seat);
  if (pulse == nullptr) return;
  pulse->last_heard = now;
  heard_anybody(now);
}

void FailureDetector::heartbeat(const Seat& seat, std::uint64_t jobs_done,
                                std::uint64_t jobs_waiting, Instant now) {
  Pulse* pulse = find(seat);
  if (pulse == nullptr) return;
  pulse->beats = true;
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
  heard_anybody(now);
  const bool ended = jobs_done != pulse->jobs_done;
  // What waits now came after a heartbeat that knew of none.
  const bool had_work = std::exchange(pulse->has_work, jobs_waiting != 0);
  if (ended || !had_work || !pulse->has_work) pulse->progress = now;
  if (ended || jobs_waiting != 0) pulse->worked = now;
  pulse->jobs_done = jobs_done;
}

void FailureDetector::promises(const Seat& seat, Duration period) {
  Pulse* pulse = find(seat);
  if (pulse == nullptr) return;
  const Duration promised = std::clamp(period, pace_.usual(), pace_.longest());
  if (std::exchange(pulse->period, promised) != promised)
    pulse->gap_mean = pulse->gap_deviation = Duration{};  // they were of another period
}

std::optional<Duration> FailureDetector::asks(const Seat& seat, bool often) const {
  const Duration asked = often ? pace_.usual() : pace_.now();
  const auto found = pulses_.find(seat.peer);
  if (found == pulses_.end() || found->second.period == asked) return std::nullopt;
  return asked;
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
  return is_stuck(pulse) ? pulse.moved : std::max(pulse.moved, pulse.worked);
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
  return std::chrono::duration_cast<Duration>(pace_.usual() * kSilentPeriods);
}

// Who waits for its welcome beats as long as it has not heard how often it is to.
Duration FailureDetector::silence_allowed_at_first() const {
  return std::max(silence_allowed(),
                  std::chrono::duration_cast<Duration>(Limits::heartbeat_period * kSilentPeriods));
}

// Who beats less often may be late by no more than others: a connection loses no heartbeat.
Duration FailureDetector::silence_allowed(const Pulse& pulse) const {
  const Duration least = pulse.beats ? silence_allowed() : silence_allowed_at_first();
  if (configured_silence_ != Duration{}) return least;
  return std::max(least + thinned(pulse),
                  std::min(pulse.gap_mean + 8 * pulse.gap_deviation,
                           std::max(knobs().silence_max, least) + thinned(pulse)));
}

std::vector<Seat> FailureDetector::silent(Instant now) const {
  std::vector<Seat> seats;
  for (const auto& [peer, pulse] : pulses_)
    if (now - pulse.last_heard > silence_allowed(pulse)) seats.push_back(pulse.seat);
  return seats;
}

Duration FailureDetector::silence(const Seat& seat, Instant now) const {
  return now - pulses_.at(seat.peer).last_heard;
}

// Of thinned heartbeats that came all before, few are due since: a silence says nothing of those
// whose next is not. Half of what would be due, were they spread evenly, must be late, or a tenth
// of all.
bool FailureDetector::hears_nobody(const std::vector<Seat>& silent, Instant now) const {
  if (silent.empty()) return false;
  Duration last = Duration::max(), quiet = Duration::max(), period{};
  for (const Seat& seat : silent)
    last = std::min(last, silence(seat, now) - thinned(pulses_.at(seat.peer)));
  std::int64_t late = 0;
  for (const auto& [peer, pulse] : pulses_) {
    quiet = std::min(quiet, now - pulse.last_heard);
    period = std::max(period, pulse.period);
    const Instant beat = pulse.last_beat == Instant{} ? pulse.last_heard : pulse.last_beat;
    late += now - beat > pulse.period ? 1 : 0;
  }
  const auto all = static_cast<double>(pulses_.size());
  const double due = std::min(1.0, to_seconds(quiet) / to_seconds(period)) * all;
  const bool nobody = quiet > last / kSilenceShare &&
                      static_cast<double>(late) >= std::min(due / 2, kLateShare * all);
  if (nobody) SWARMLINE_MARK("failure_detector.hears_nobody");
  return nobody;
}

bool FailureDetector::has_beaten(const Seat& seat) const {
  const auto found = pulses_.find(seat.peer);
  return found != pulses_.end() && found->second.seat == seat && found->second.beats;
}

bool FailureDetector::is_deaf(Instant now) const {
  return heard_anybody_ != Instant{} && now - heard_anybody_ > silence_allowed();
}

bool FailureDetector::was_deaf(Instant now) const {
  if (is_deaf(now)) return true;
  return deaf_until_ != Instant{} &&
         now - deaf_until_ <= knobs().reach_timeout + knobs().redial_time;
}

Duration FailureDetector::stuck_time(Duration period) const {
  return std::max<Duration>(knobs().stuck_hop_timeouts * hop_timeout_,
                            knobs().stuck_heartbeats * period);
}

Duration FailureDetector::stuck_time() const {
  return stuck_time(pace_.now());
}

bool FailureDetector::is_stuck(const Pulse& pulse) const {
  return pulse.last_beat - pulse.progress > stuck_time(pulse.period);
}

std::vector<Seat> FailureDetector::stuck() const {
  std::vector<Seat> seats;
  for (const auto& [peer, pulse] : pulses_)
    if (pulse.works && is_stuck(pulse)) seats.push_back(pulse.seat);
  return seats;
}

std::uint32_t FailureDetector::count_stuck(PeerId peer) {
  const std::uint32_t times = ++stuck_seats_[peer];
  if (stuck_seats_.size() > kStuckPeersMax) stuck_seats_.erase(stuck_seats_.begin());
  return times;
}

Duration FailureDetector::told_within() const {
  Duration longest = pace_.now();
  for (const auto& [peer, pulse] : pulses_) longest = std::max(longest, pulse.period);
  return longest;
}

// ---- Its own looks ------------------------------------------------------------------------------

Instant FailureDetector::next_look(Instant now) {
  expected_look_ = now + pace_.usual() / static_cast<std::int64_t>(knobs().looks_per_heartbeat);
  return expected_look_;
}

bool FailureDetector::overslept(Instant now) const {
  return now - expected_look_ > pace_.usual();
}

bool FailureDetector::was_stopped(Instant now) const {
  return overslept(now) || now < held_up_until_;
}

void FailureDetector::is_held_up(Instant now) {
  held_up_until_ = now + pace_.usual();
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
