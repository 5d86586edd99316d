#include "pipeline/stage/common/bulk_policy.h"

namespace swarmline {
namespace {

std::vector<std::string> ways_of(Transport transport) {
  switch (transport) {
    case Transport::kAuto:
      return {"shm", "rdma", "streams"};
    case Transport::kTcp:
      return {};
    case Transport::kShm:
      return {"shm"};
    case Transport::kUcx:
      return {"ucx"};
    case Transport::kStreams:
      return {"streams"};
  }
  return {};
}

}  // namespace

BulkPolicy bulk_policy_of(const RunConfig& config) {
  // Who names a way has decided.
  BulkPolicy policy{.ways = ways_of(config.net.transport),
                    .trusted = {},
                    .streams = config.net.streams,
                    .measures = config.net.transport == Transport::kAuto};
  for (const std::string& text : config.security.trusted_networks)
    if (const auto range = IpRange::parse(text)) policy.trusted.push_back(*range);
  return policy;
}

}  // namespace swarmline
