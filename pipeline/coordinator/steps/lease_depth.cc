#include "pipeline/coordinator/steps/lease_depth.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/marks.h"
#include "base/order_statistics.h"
#include "base/units.h"
#include "pipeline/source/lease_window.h"

namespace swarmline {
namespace {

// What a source asks for at most.
static_assert(LeaseDepth::kMostWithMemory <= kWindowOfTheFast);

// Of a peer's work on a microbatch, what the next one waits for: all but its weight gradients.
constexpr double kWaitedFor = 2.0 / 3;
constexpr std::uint64_t kOfOneSourceMin = 2;

}  // namespace

void LeaseDepth::on_leased(PeerId source, bool is_training, Instant now) {
  std::deque<Leased>& own = under_way_[source];
  // Fewer than one for each source: it meets hardly anybody.
  own.push_back({.when = now, .measures = is_training && all_under_way_ < under_way_.size()});
  ++all_under_way_;
}

void LeaseDepth::on_restored(PeerId source, std::uint64_t under_way) {
  forget(source);
  under_way_[source].assign(under_way, {.when = Instant{}, .measures = false});
  all_under_way_ += under_way;
}

void LeaseDepth::on_finished(PeerId source, std::uint64_t microbatches, Instant now) {
  const auto own = under_way_.find(source);
  if (own == under_way_.end()) return;
  for (; microbatches > 0 && !own->second.empty(); --microbatches) {
    const Leased leased = own->second.front();
    own->second.pop_front();
    --all_under_way_;
    if (leased.measures && round_trips_.size() < kRoundTripsMax)
      round_trips_.push_back(to_seconds(now - leased.when));
  }
}

void LeaseDepth::forget(PeerId source) {
  const auto own = under_way_.find(source);
  if (own == under_way_.end()) return;
  all_under_way_ -= own->second.size();
  under_way_.erase(own);
}

void LeaseDepth::on_step_over(std::span<const StageSpeed> stages) {
  const std::vector<double> round_trips = std::exchange(round_trips_, {});
  if (round_trips.empty() || stages.empty()) return;
  double peers = 0, device_seconds = 0, rate = stages.front().rate;
  for (const StageSpeed& stage : stages) {
    if (stage.rate <= 0) return;
    peers += stage.peers;
    // Of the mean microbatch: the faster a peer is, the more come its way.
    device_seconds += kWaitedFor * stage.peers / stage.rate;
    rate = std::min(rate, stage.rate);
  }
  const double round_trip = nth_smallest(round_trips, round_trips.size() / 4);
  const double on_links = rate * std::max(0.0, round_trip - device_seconds);
  needed_before_ = needed_;
  needed_ = peers * (1 + kWaiting) + on_links;
  SWARMLINE_MARK("lease_depth.learned");
}

std::uint64_t LeaseDepth::of_all(std::uint64_t sources, bool has_memory) const {
  const std::uint64_t usual = sources * window_;
  if (!needed_) return usual;
  const double needed = std::ceil(std::max(*needed_, needed_before_.value_or(0)));
  const auto least = static_cast<double>(std::min(usual, sources * kOfOneSourceMin));
  const auto most = static_cast<double>(has_memory ? usual * kMostWithMemory : usual);
  return static_cast<std::uint64_t>(std::clamp(needed, least, most));
}

}  // namespace swarmline
