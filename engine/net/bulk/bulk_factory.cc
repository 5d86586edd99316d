#include "engine/net/bulk/bulk_factory.h"

#include <utility>

#include "engine/net/shm/shm_backend.h"
#include "engine/net/streams/streams_backend.h"
#include "engine/net/ucx/ucx_backend.h"

namespace swarmline {

std::unique_ptr<BulkDoor> make_bulk_door(AsioRuntime& runtime, Network& network,
                                         const BulkDoorOptions& options) {
  std::vector<std::unique_ptr<BulkBackend>> backends;
  backends.push_back(std::make_unique<ShmBackend>(runtime));
  for (const bool rdma_only : {true, false})
    backends.push_back(std::make_unique<UcxBackend>(runtime, rdma_only));
  backends.push_back(std::make_unique<StreamsBackend>(runtime, network));
  return std::make_unique<BulkDoor>(runtime, options, std::move(backends));
}

}  // namespace swarmline
