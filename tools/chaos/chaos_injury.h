// What each kind of fault does to a process, and how it heals.
//   Units:  left_by(): the share of its speed that a fault leaves a process, in [0, 1].
//   Thread: control thread. Errors: what can't be done is logged (chaos_swarm.h).
#pragma once

#include <string>

#include "tools/chaos/chaos_plan.h"
#include "tools/chaos/chaos_swarm.h"

namespace swarmline {

double left_by(const ChaosFault& fault);
void hurt(ChaosSwarm& swarm, const ChaosFault& fault, const std::string& process);
// Not of what starts a process again, which may fail.
void heal(ChaosSwarm& swarm, const ChaosFault& fault, const std::string& process);

}  // namespace swarmline
