// The number of the protocol that the processes of a run speak with each other. It is raised
// whenever processes built before the change can't take part in a run with those built after.
//   Thread: any. Pure.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace swarmline {

// 6: a state's digest is made piece by piece, so that a device can make it.
// 5: messages longer than a frame travel in pieces, peers give each other the run's data, and a
// stage may begin with a copy that one kept.
inline constexpr std::uint32_t kProtocolVersion = 6;

// Of one that says hello. kRefused: which of the two is older, and what to do.
Result<void> check_protocol(std::uint32_t theirs);

}  // namespace swarmline
