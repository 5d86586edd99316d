// One seed: a swarm, its links and its faults, all drawn from it; run, and judged.
//   What:      the real coordinator and peers with the exact stand-in model (fake_stage_model.h),
//              in a third of the seeds in a device's memory (resident_model.h).
//              Each seed switches on its own half of the kinds of faults: what only shows when
//              some kind is absent is found, too (swarm testing, Groce et al., ISSTA 2012). A
//              quarter of the seeds turns a few knobs of the protocol to hostile values.
//   Judged:    at every event, the ledger's invariants; at every commit sent, that the journal has
//              it, and at every coordinator's death that its disk has kept it, and every seat that
//              was given; at every version that a peer says it holds, that its parameters and
//              moments are bit for bit those of the same run without faults; the end, a bounded
//              time after the last fault has healed, and well, with a checkpoint of the end; the
//              same trace twice.
//   Errors:    a broken CHECK ends the process: tools run seeds in processes of their own.
//   Thread:    one. Same seed, same outcome.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "sim/faults/random_faults.h"
#include "sim/oracles/swarm_oracles.h"
#include "sim/seeds/hostile_knobs.h"

namespace swarmline {

// After the last fault a run may take as long as so many without faults, and this besides: every
// deadline that a fault may have set off passes in it; so many waits of a knob that is turned up,
// as well. Virtual.
inline constexpr int kLivenessRuns = 4;
inline constexpr Duration kLivenessTime = std::chrono::seconds(60);
inline constexpr int kLivenessWaits = 4;
// ... and this, where faults last for minutes or links die unheard.
inline constexpr Duration kLongLivenessTime = std::chrono::seconds(900);

// What seeds draw besides, each in some of them.
struct SeedExtras {
  std::vector<FaultKind> kinds;  // of those on request
  bool hits_last = false;        // the last peer of a stage, too, by what it outlives
  bool control_times = false;    // builds, hashes, copies and the like take time
  bool thin_heartbeats = false;  // of a handful of peers, as of thousands
  bool keys = false;             // links between keys, and what happens to these
  bool small_pieces = false;     // a stage's state comes in many: one that joins serves early
  bool islands = false;          // peers on few hosts sum there first
  std::set<OracleRule> rules = all_oracle_rules();  // whose findings are violations
};
// What every run of seeds draws: all that there are.
SeedExtras usual_extras();

// Of runs that last: what is looked at after each event of a short one costs too much.
struct LongRun {
  Duration lasts{};   // then it is asked to stop; 0: until its steps are done, as seeds
  Duration looks{};   // between two looks at invariants, and at what can be buried
  Duration window{};  // sizes are told of each
  std::function<void(const struct SeedOutcome&)> on_window;
};

struct SeedScenario {
  SimClusterOptions swarm;
  RandomFaultOptions faults;
  LongRun longer;
  bool faults_at_once = false;  // else once it trains
  HostileKnobs knobs;
  Duration patience = kLivenessTime;
  std::set<OracleRule> rules = all_oracle_rules();
  std::string summary;  // one line, for people
};
// Faults are drawn from swarm.seed.
SeedScenario scenario_of(std::uint64_t seed, const SeedExtras& extras = usual_extras());

struct SeedOutcome {
  std::string violation;  // empty: none
  std::string summary;
  std::vector<std::string> history;     // of faults
  std::vector<std::string> events;      // of the coordinator
  std::vector<OracleFinding> findings;  // of all rules
  std::uint64_t trace_hash = 0;
  std::uint64_t steps = 0;  // events delivered, over all runs
  double virtual_seconds = 0;
  std::map<FaultKind, std::uint64_t> faults;
  std::vector<std::map<std::string_view, std::uint64_t>> windows;  // the largest sizes in each
  std::uint64_t committed = 0;
  std::uint64_t peers = 0;  // processes, ever
  std::uint64_t journal_records = 0;
};
// `on_frame`: called for each frame delivered in the first run with faults, after its time.
using SeedTap = std::function<void(Duration, SimNodeId from, SimNodeId to, const Frame&)>;
SeedOutcome run_scenario(const SeedScenario& scenario, const SeedTap& on_frame = {});
// Not twice.
SeedOutcome run_scenario_once(const SeedScenario& scenario);
inline SeedOutcome run_seed(std::uint64_t seed, const SeedExtras& extras,
                            const SeedTap& on_frame = {}) {
  return run_scenario(scenario_of(seed, extras), on_frame);
}

}  // namespace swarmline
