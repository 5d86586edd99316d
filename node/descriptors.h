// How many files and connections this process may have open at a time. The system's soft limit is
// often 1024, and a coordinator has a connection to each of its peers.
//   Thread: any; before connections are opened.
//   Errors: kUserMistake where the hard limit, which only the machine's owner can raise, is below
//           what a run takes.
//   Bounds: kDescriptorsBesides for all that is no peer: files, tools that ask, a peer's new
//           connection beside its old one.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/config/run_config.h"

namespace swarmline {

inline constexpr std::uint64_t kDescriptorsBesides = 192;

// Up to the hard limit; what it is then. Child processes inherit it.
std::uint64_t raise_descriptors();

// Whether a coordinator that may have so many can serve the peers that its run wants.
Result<void> enough_descriptors(const RunConfig& config, std::uint64_t allowed);

}  // namespace swarmline
