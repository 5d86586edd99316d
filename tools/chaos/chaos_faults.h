// The faults of a chaos plan on their way: those it names, and the random ones it asks for. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tools/chaos/chaos_plan.h"

namespace swarmline {

// Armed: it waits for somebody to come to its phase.
enum class FaultState : std::uint8_t { kWaiting, kArmed, kDone };

struct PendingFault {
  ChaosFault fault;
  FaultState state = FaultState::kWaiting;
  std::string newcomer = {};  // started for it
  bool drawn = false;         // of the random ones: its victim is drawn when it is due
};
std::vector<PendingFault> pending_faults(const ChaosPlan& plan, Rng& rng);

// ", averaging step 8", of a step that is 7 in the protocol: the point of it at which a fault hit;
// empty where it has none.
std::string point_text(const ChaosFault& fault, std::uint64_t step);

}  // namespace swarmline
