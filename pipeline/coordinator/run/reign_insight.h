// What a reign shows to the simulator's oracles.
//   Thread: control thread. Bounds: glance_of() is constant, the others one pass over what they
//           name.
#pragma once

#include <set>
#include <vector>

#include "pipeline/coordinator/coordinator_parts.h"
#include "pipeline/protocol/insight.h"

namespace swarmline {

RunGlance glance_of(const CoordinatorParts& parts);
// Leased microbatches that nobody owns everywhere, and that can't be leased again: somebody must be
// trying them, or has claimed them.
std::set<MicrobatchId> relying_on_tries(const CoordinatorParts& parts);
std::vector<NamedSize> sizes_of(const CoordinatorParts& parts);

}  // namespace swarmline
