// A scenario in virtual time: the real coordinator and peers over the simulated doors, each job and
// each byte charged as the scenario says.
//   Optimum: the slowest stage's microbatches a second with the best seating of the machines that
//            are there and not stopped, moves, averaging and network free.
//   Thread:  one. Same scenario, same result. Bounds: kSamples samples.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sim/scenario/scenario_costs.h"

namespace swarmline {

struct ScenarioSample {
  double seconds = 0;     // its end
  double throughput = 0;  // committed microbatches a second; NaN after the last commit
  double optimum = 0;
  std::uint32_t machines = 0;  // there and not stopped
};

struct ScenarioResult {
  std::string name;
  bool ended_badly = false;
  std::string sentence;  // how the run ended; empty: the scenario's time was up
  double seconds = 0;    // virtual, of training
  std::uint64_t steps = 0;
  std::uint64_t microbatches = 0;  // committed
  std::uint64_t tokens = 0;
  double optimal_microbatches = 0;     // integral of the optimum
  double seconds_without_optimum = 0;  // fewer machines than stages
  // Forward and backward passes of committed steps: done by devices, and those that they hold.
  std::uint64_t passes_done = 0, passes_counted = 0;
  std::map<FaultKind, std::uint64_t> faults;
  // As the coordinator saw it, after the start. Who moves to another stage joins there anew.
  std::uint64_t joined = 0, lost = 0, left = 0, moved = 0;
  double machine_hours = 0, dollars = 0;
  ScenarioTraffic traffic;
  std::uint64_t parameters = 0, boundary_bytes = 0;
  std::uint32_t peak_machines = 0;
  std::uint64_t events = 0;  // of the simulation
  std::uint64_t trace_hash = 0;
  std::vector<ScenarioSample> samples;
  std::vector<std::string> findings;  // of the oracles, all of them; there should be none
  std::vector<std::string> log;       // faults and the coordinator's events, in order

  double share_of_optimum() const {
    return optimal_microbatches > 0 ? static_cast<double>(microbatches) / optimal_microbatches : 0;
  }
  double wasted_share() const {
    return passes_done == 0
               ? 0
               : 1 - static_cast<double>(passes_counted) / static_cast<double>(passes_done);
  }
};

// `on_progress`: of virtual time, 0 to 1; as often as there are samples.
Result<ScenarioResult> simulate(const Scenario& scenario,
                                const std::function<void(double)>& on_progress = {});

}  // namespace swarmline
