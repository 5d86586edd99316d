// What there is to know about this machine. Blocking; asks the system, and leaves nothing behind.
//   Thread: any, one at a time. Errors: none; what can't be found out is said in the facts.
//   Bounds: a port is held for the call; kTrialFileBytes are written for the call; the driver's
//           tool is given kDriverToolSeconds.
#pragma once

#include <cstdint>
#include <string>

#include "base/units.h"
#include "tools/doctor/machine_checks.h"

namespace swarmline {

inline constexpr std::uint64_t kTrialFileBytes = 1 * kMiB;
inline constexpr int kDriverToolSeconds = 5;

// Listens there for a moment.
PortFacts look_at_port(const std::string& key, const std::string& address);
// Of this process; `needed` and `what_for` are the caller's.
DescriptorFacts look_at_descriptors();
// Of a folder that need not be there yet: the nearest one above it that is.
DiskFacts look_at_disk(const std::string& folder);
// Of the machine, or of the GPU with that number.
MemoryFacts look_at_memory(const std::string& device);
ComputeFacts look_at_cpu();
DriverFacts look_at_driver(const std::string& device);

}  // namespace swarmline
