// Which members of a group sum on their host before all average, and who speaks for them. Pure.
//   Input:   by rank, which host each says it is on; empty: it says none. A word that is not true
//            costs speed: who is in an island sends no other messages, only to others.
//   Returns: by rank, who speaks for it: the lowest rank of its island, or itself. Empty: each
//            speaks for itself, since no two are on one host, or all are: there a butterfly leaves
//            no machine, and spreads the work.
//   Bounds:  kIslandMembersMax in an island (engine/collective/island.h); a host with more has
//            several islands.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace swarmline {

std::vector<std::uint32_t> islands_of(std::span<const std::string> hosts);
// All say they are on one host, where one island has room for them.
bool all_on_one(std::span<const std::string> hosts);

}  // namespace swarmline
