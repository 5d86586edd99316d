#include "pipeline/stage/microbatches/hop_clock.h"

#include <algorithm>
#include <cmath>

#include "pipeline/protocol/knobs.h"

namespace swarmline {
namespace {

// RFC 6298's gains; downwards the deviation follows sixteen times slower than it does there.
constexpr double kSmoothedGain = 1.0 / 8;
constexpr double kDeviationGainUp = 1.0 / 4;
constexpr double kDeviationGainDown = 1.0 / 64;

}  // namespace

void HopClock::Estimate::add(double seconds) {
  if (samples++ == 0) {
    smoothed = seconds;
    deviation = seconds / 2;
    return;
  }
  const double off = std::abs(seconds - smoothed) - deviation;
  deviation += off * (off > 0 ? kDeviationGainUp : kDeviationGainDown);
  smoothed += (seconds - smoothed) * kSmoothedGain;
}

void HopClock::begin(const AttemptId& id, PeerId peer, Leg leg, Instant now) {
  running_[id] = {.peer = peer, .leg = leg, .began = now};
}

void HopClock::learn(const Running& leg, Instant now) {
  estimates_[leg.peer][static_cast<std::size_t>(leg.leg)].add(to_seconds(now - leg.began));
}

void HopClock::end(const AttemptId& id, PeerId peer, Instant now) {
  const auto leg = running_.find(id);
  if (leg == running_.end() || leg->second.peer != peer) return;
  learn(leg->second, now);
  all_[static_cast<std::size_t>(leg->second.leg)].add(to_seconds(now - leg->second.began));
  running_.erase(leg);
  answered_.emplace(id.microbatch.phase, peer);
}

void HopClock::supersede(const AttemptId& id) {
  if (const auto leg = running_.find(id); leg != running_.end()) leg->second.superseded = true;
}

void HopClock::drop(const AttemptId& id) {
  running_.erase(id);
}

void HopClock::on_over(const Phase& phase, Instant now) {
  std::erase_if(running_, [&](const auto& entry) {
    if (entry.first.microbatch.phase != phase) return false;
    if (entry.second.superseded) learn(entry.second, now);
    return true;
  });
  std::erase_if(answered_, [&](const auto& entry) { return entry.first == phase; });
}

void HopClock::on_link_lost(PeerId peer) {
  std::erase_if(running_, [&](const auto& entry) {
    return entry.second.superseded && entry.second.peer == peer;
  });
}

void HopClock::forget(PeerId peer) {
  estimates_.erase(peer);
  stepped_.erase(peer);
  std::erase_if(answered_, [&](const auto& entry) { return entry.second == peer; });
  on_link_lost(peer);
}

Duration HopClock::timeout(Leg leg) const {
  const double usual = kUsual * all_[static_cast<std::size_t>(leg)].smoothed;
  const double most = kTimeoutsMax * to_seconds(timeout_);
  return std::max(timeout_, from_seconds(std::min(usual, most)));
}

Duration HopClock::timeout(const AttemptId& id) const {
  const auto leg = running_.find(id);
  return leg == running_.end() ? timeout_ : timeout(leg->second.leg);
}

Duration HopClock::patience(const AttemptId& id) const {
  const auto leg = running_.find(id);
  if (leg == running_.end()) return timeout_;
  const Duration timeout = this->timeout(leg->second.leg);
  const auto known = estimates_.find(leg->second.peer);
  if (known == estimates_.end()) return timeout;
  const Estimate& estimate = known->second[static_cast<std::size_t>(leg->second.leg)];
  if (estimate.samples < kSamplesMin) return timeout;
  const double late = kMargin * (estimate.smoothed + kDeviations * estimate.deviation);
  return std::min(
      timeout, std::max(knobs().hop_late_min, from_seconds(std::min(late, to_seconds(timeout)))));
}

void HopClock::on_stepped(PeerId peer, Version version) {
  Version& newest = stepped_[peer];
  newest = std::max(newest, version);
}

bool HopClock::may_pass(const AttemptId& id, Version version) const {
  const auto leg = running_.find(id);
  if (leg == running_.end()) return false;
  const PeerId peer = leg->second.peer;
  const auto owed = std::ranges::count_if(running_, [&](const auto& entry) {
    return entry.second.superseded && entry.second.peer == peer;
  });
  const auto stepped = stepped_.find(peer);
  const bool has_it = stepped != stepped_.end() && stepped->second >= version;
  return (has_it || answered_.contains({id.microbatch.phase, peer})) &&
         owed < static_cast<std::ptrdiff_t>(knobs().hop_owed_max);
}

}  // namespace swarmline
