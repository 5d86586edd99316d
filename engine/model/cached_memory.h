// Memory of a device that libtorch keeps for tensors to come, given back to the device when there
// is no room: for tensors of other sizes, and for what is allocated beside libtorch.
//   Thread: the device's. Errors: none; what is in use stays.
#pragma once

#include "engine/model/libtorch.h"

namespace swarmline {

void release_cached_memory(at::Device device);
// Once a process: what is allocated beside libtorch has it released before it gives up.
void share_cached_memory(at::Device device);

}  // namespace swarmline
