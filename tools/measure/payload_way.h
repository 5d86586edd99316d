// The way that payloads go between two ends of this machine, by its name, for benchmarks: "tcp"
// (with their frames), "tls" (the same, between keys), "shm", "ucx", "rdma", "streams".
//   Ownership: the runtime outlives the door; the network does, or is over before.
//   Thread:    control thread of the runtime.
//   Errors:    one sentence.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ip_range.h"
#include "base/result.h"
#include "engine/net/bulk/bulk_door.h"
#include "engine/runtime/asio_runtime.h"

namespace swarmline {

bool goes_with_frames(std::string_view way);
// Allows that way alone, over loopback and between addresses in `trusted`.
std::unique_ptr<BulkDoor> make_door_of(const std::string& way, AsioRuntime& runtime,
                                       Network& network, std::vector<IpRange> trusted = {});
// Whether this process has it.
Result<void> way_is_here(const std::string& way);
inline constexpr std::string_view kWayNotTaken = "its two ends do not meet on this machine";

}  // namespace swarmline
