#include "tools/measure/payload_way.h"

#include <utility>

#include "engine/net/bulk/bulk_factory.h"
#include "engine/net/shm/shm_backend.h"
#include "engine/net/ucx/ucx_backend.h"

namespace swarmline {

bool goes_with_frames(std::string_view way) {
  return way == "tcp" || way == "tls";
}

std::unique_ptr<BulkDoor> make_door_of(const std::string& way, AsioRuntime& runtime,
                                       Network& network, std::vector<IpRange> trusted) {
  auto door = make_bulk_door(runtime, network);
  trusted.push_back(*IpRange::parse("127.0.0.0/8"));
  if (!goes_with_frames(way)) door->allow({.ways = {way}, .trusted = std::move(trusted)});
  return door;
}

Result<void> way_is_here(const std::string& way) {
  if (goes_with_frames(way) || way == "streams") return {};
  AsioRuntime runtime;
  if (way == "shm") return ShmBackend(runtime).is_viable();
  return UcxBackend(runtime, way == "rdma").is_viable();
}

}  // namespace swarmline
