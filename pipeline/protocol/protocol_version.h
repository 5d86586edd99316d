// The number of the protocol that the processes of a run speak with each other. It is raised
// whenever processes built before the change can't take part in a run with those built after.
//   Thread: any. Pure.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace swarmline {

// 14: digests are made of padded pieces and of their hashes, so that a device makes all of them;
//     a seal says how an island's sums move.
// 13: an average's digest is made piece by piece, as a state's is; members of a group that are on
//     one host may sum first, and one speaks for them.
// 12: an average's chunks are half as large, and more of them are under way.
// 11: answers say which version their peer has stepped to, and how much waits for its device.
// 10: sources say how many of their leases they are done with.
// 9: passes are counted for speeds.
// 8: with a delay the version before is frozen along.
// 7: who joins serves with the parameters alone.
// 6: a state's digest is made piece by piece, so that a device can make it.
inline constexpr std::uint32_t kProtocolVersion = 14;

// Of one that says hello. kRefused: which of the two is older, and what to do.
Result<void> check_protocol(std::uint32_t theirs);

}  // namespace swarmline
