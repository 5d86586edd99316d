// How many microbatches a source keeps under way: asks for leases up to a window, one more for each
// that ends.
//   Units: microbatches, counted since the seat was taken, so that messages may cross. Thread:
//          pure.
#pragma once

#include <cstdint>
#include <numeric>

#include "engine/config/run_config.h"

namespace swarmline {

class LeaseWindow {
 public:
  explicit LeaseWindow(std::uint32_t window) : window_(window) {}
  void on_finished() { ++finished_; }
  // The total to ask for; ask again whenever it grew. `under_way_max`: who is slow keeps fewer.
  std::uint64_t total_wanted(std::uint64_t under_way_max = ~std::uint64_t{0}) const {
    return finished_ + (under_way_max < window_ ? under_way_max : window_);
  }
  std::uint32_t size() const { return window_; }
  std::uint64_t finished() const { return finished_; }

 private:
  std::uint32_t window_;
  std::uint64_t finished_ = 0;
};

// `in_flight` of the config, or enough that every peer of the swarm has one microbatch on its
// device, one waiting and two on their way: docs/comparison.md shows what fewer cost.
inline constexpr std::uint32_t kWindowPerPeer = 4;

inline std::uint32_t window_for(std::uint32_t configured, std::uint32_t peers_total,
                                std::uint32_t sources) {
  if (configured > 0) return configured;
  const std::uint32_t shared_by = sources == 0 ? 1 : sources;
  const std::uint32_t per_source = (kWindowPerPeer * peers_total + shared_by - 1) / shared_by;
  return per_source < 2 ? 2 : per_source;
}
inline std::uint32_t window_for(const PipelineSection& pipeline) {
  const std::uint32_t peers = std::accumulate(pipeline.peers.begin(), pipeline.peers.end(), 0U);
  return window_for(pipeline.in_flight, peers, pipeline.peers.front());
}

// The window is what a source of usual speed keeps. The coordinator gives sources leases by their
// speeds (source_shares.h): a fast one asks for so many times as many.
inline constexpr std::uint32_t kWindowOfTheFast = 2;

}  // namespace swarmline
