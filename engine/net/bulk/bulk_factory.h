// The bulk-link door with every backend that this program has.
//   Ownership: the runtime outlives the door; the network does, or is over before.
//   Thread:    control thread.
#pragma once

#include <memory>

#include "engine/net/bulk/bulk_door.h"
#include "engine/runtime/asio_runtime.h"

namespace swarmline {

std::unique_ptr<BulkDoor> make_bulk_door(AsioRuntime& runtime, Network& network,
                                         const BulkDoorOptions& options = {});

}  // namespace swarmline
