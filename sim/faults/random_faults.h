// Faults drawn from a seed while a swarm runs. Once it trains, a peer is hit only while its stage
// has another one that serves and suffers nothing, or a shadow (shadowed_stages), so that without
// shadows only kStage makes a stage lose its last; before, anybody is, and comes back.
//   Thread: that of the SimCluster. Bounds: `count` faults, or those of `lasts`, kStagesLostMax of
//           them kStage (a run that only goes back ends); peers_made_max peers made by joins.
#pragma once

#include <cstdint>
#include <vector>

#include "base/hours.h"
#include "base/rng.h"
#include "sim/faults/fault.h"

namespace swarmline {

// How often a kind of fault hits the whole swarm.
struct FaultRate {
  FaultKind kind = FaultKind::kKill;
  double per_hour = 1;
  Duration time_max{};  // 0: as the options say
};
// So that each of `peers` has a mean time between failures of that kind of so long.
inline FaultRate rate_of_mtbf(FaultKind kind, Duration mtbf, std::size_t peers) {
  return {.kind = kind,
          .per_hour = static_cast<double>(peers) / to_seconds(mtbf) * kSecondsPerHour,
          .time_max = {}};
}

struct RandomFaultOptions {
  std::vector<FaultKind> kinds;
  std::uint64_t count = 0;
  // Instead of `kinds`, `count` and `gap`, each at its rate, for so long.
  std::vector<FaultRate> rates;
  Duration lasts{};
  Duration gap = std::chrono::milliseconds(50);  // between two faults; mean of an exponential draw
  Duration time_max = std::chrono::seconds(4);   // of what heals; short ones are likelier
  double factor_max = 10;                        // of kSlow and kCorrupt
  // Of those kinds that are drawn on request alone, and whose longest that of a coordinator is.
  Duration long_time_max = std::chrono::seconds(700);
  Duration long_time_max_coordinator = std::chrono::seconds(240);
  // After a fault has healed its node may still be found out about for so long.
  Duration grace = std::chrono::seconds(1);
  // So many stages: the last peer of one may be hit, too, or all of it be killed, where a shadow
  // can take it over; then nothing else happens until it is served again. 0: it is not.
  std::uint32_t shadowed_stages = 0;
  // What heals hits the last peer of a stage, too: it holds what it has.
  bool hits_last = false;
  // Nobody goes for good while no more are left that stay: as many as a run needs.
  std::size_t machines_min = 0;
  // Nobody joins while so many are there. 0: anybody may.
  std::size_t machines_max = 0;
  std::size_t peers_made_max = 64;
};

class RandomFaults {
 public:
  static constexpr std::size_t kStagesLostMax = 4;

  RandomFaults(SimCluster& cluster, FaultInjector& injector, RandomFaultOptions options, Rng rng)
      : cluster_(cluster), injector_(injector), options_(std::move(options)), rng_(rng) {}

  // The first fault comes one gap from now.
  void start();
  void on_training() { trains_ = true; }
  bool over() const {
    return options_.rates.empty() ? drawn_ == options_.count
                                  : ended_ || cluster_.elapsed() >= options_.lasts;
  }

 private:
  void next();
  void draw();
  std::optional<SimNodeId> victim(FaultKind kind);
  bool can_spare(SimNodeId node, FaultKind kind);
  std::size_t machines_without(SimNodeId node);
  SimNodeId any_node();
  Fault draw_kind();
  bool has_heir(StageId stage, SimNodeId besides);
  bool is_served(StageId stage, SimNodeId besides);
  void kill_stage(StageId stage);
  bool is_sound(std::size_t peer);
  Duration time(Duration most);
  void draw_long(Fault& fault, Duration most);

  SimCluster& cluster_;
  FaultInjector& injector_;
  RandomFaultOptions options_;
  Rng rng_;
  bool trains_ = false;
  bool ended_ = false;
  std::uint64_t drawn_ = 0;
  std::size_t made_ = 0;
  std::size_t stages_lost_ = 0;
  Duration long_time_{};  // of the rate drawn last
};

}  // namespace swarmline
