// What somebody who rents of a fleet has of it: the same trace as another one.
//   Units:  seconds. Thread: any; pure. Errors: none; CHECK where a function wants names.
#pragma once

#include <cstdint>

#include "sim/fleet/fleet.h"

namespace swarmline {

// The same fleet with its machines named: of a fleet of counts who leaves is drawn from the seed.
Fleet named_fleet(const Fleet& fleet, std::uint64_t seed);

// Who wants `most` machines at a time takes those that have been there longest, and another one at
// the instant when one is taken away, while there is another. CHECK: fleet.names_nodes.
Fleet rented_fleet(const Fleet& fleet, std::uint32_t most);

// With machines that are there before all others and never taken away, numbered from
// first_safe_node() of the result on. CHECK: fleet.names_nodes.
Fleet with_safe_machines(const Fleet& fleet, std::uint32_t machines);
std::uint32_t first_safe_node(const Fleet& fleet, std::uint32_t machines);

// When machines can be used: those that come after the beginning so much later, and never when they
// are taken before. CHECK: fleet.names_nodes.
Fleet usable_fleet(const Fleet& fleet, double join_seconds);

// The integral of the number of machines over time.
double machine_seconds(const Fleet& fleet);
// At how many instants at least one machine was taken away. CHECK: fleet.names_nodes.
std::uint64_t loss_instants(const Fleet& fleet);

}  // namespace swarmline
