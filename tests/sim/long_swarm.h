// Swarms that run for days under steady faults, in virtual time.
//   What:   stages of many peers whose steps take minutes; each kind of fault comes at its own
//           rate, as long as the run lasts. Heartbeats are rare, and thinned out.
//   Thread: any; pure.
#pragma once

#include "sim/seeds/swarm_seed.h"

namespace swarmline {

struct LongSwarm {
  std::uint32_t stages = 8;
  std::uint32_t peers_of_stage = 25;
  Duration lasts = std::chrono::hours(24 * 7);
  Duration window = std::chrono::hours(24);
  std::uint64_t seed = 1;
};
SeedScenario long_scenario(const LongSwarm& swarm);

}  // namespace swarmline
