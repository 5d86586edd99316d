// How many microbatches all sources together keep under way: enough that no device waits for work,
// and few that wait for a device.
//   What:      one on each peer's device, kWaiting of one before it, and as many as are on links:
//              the rate of the slowest stage times what a microbatch spends there. That is what a
//              round trip of one that was leased into an empty pipeline took (the lower quartile of
//              those of a step), less the device times on its way (Little's law; rate and round
//              trip as in BBR: Cardwell et al., ACM Queue 14/5, 2016). Of two steps the larger
//              figure counts.
//   Units:     microbatches; seconds.
//   Thread:    plain value; pure.
//   Bounds:    at least two for each source; at most the usual window of each, which is what
//              `swarmline memory` counts, or kMostWithMemory times it where all have the memory;
//              one instant for each microbatch under way, kRoundTripsMax round trips.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/units.h"

namespace swarmline {

class LeaseDepth {
 public:
  static constexpr double kWaiting = 1.5;
  static constexpr std::uint32_t kMostWithMemory = 2;
  static constexpr std::size_t kRoundTripsMax = 1024;  // of a step, the first ones

  struct StageSpeed {
    std::uint32_t peers = 0;
    double rate = 0;  // microbatches per second of all of them; 0: not all are measured
  };

  // `window`: of one source, for as long as nothing is known.
  explicit LeaseDepth(std::uint32_t window) : window_(window) {}

  // `is_training`: evaluations end at the last stage, and measure nothing.
  void on_leased(PeerId source, bool is_training, Instant now);
  // Those that it was leased by a coordinator before this one: they count, and measure nothing.
  void on_restored(PeerId source, std::uint64_t under_way);
  void on_finished(PeerId source, std::uint64_t microbatches, Instant now);
  void forget(PeerId source);
  void forget_all() { *this = LeaseDepth(window_); }
  void on_step_over(std::span<const StageSpeed> stages);

  // `has_memory`: every peer could hold kMostWithMemory times what it needs usually.
  std::uint64_t of_all(std::uint64_t sources, bool has_memory) const;

 private:
  struct Leased {
    Instant when;
    bool measures;
  };

  std::uint32_t window_;
  // In the order in which they were leased; the n-th that ends is taken for the n-th leased, which
  // makes no round trip shorter than the shortest.
  std::map<PeerId, std::deque<Leased>> under_way_;
  std::uint64_t all_under_way_ = 0;
  std::vector<double> round_trips_;  // seconds, since the last step was over
  std::optional<double> needed_, needed_before_;
};

}  // namespace swarmline
