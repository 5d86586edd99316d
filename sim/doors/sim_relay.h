// A relay between simulated links (relay_door.h), at a node of its own. What it joins is a link of
// the two ends: it costs what their link does.
//   Ownership: the network outlives it; its end breaks the links that it relays.
//   Thread:    that of the SimRuntime. Errors: as a SimNetwork's.
//   Bounds:    RelayBounds, but for bytes per second and buffers, of which links have their own.
#pragma once

#include <memory>

#include "engine/net/relay_door.h"
#include "sim/doors/sim_network.h"

namespace swarmline {

struct SimRelayPlace;

class SimRelay final : public RelayDoor {
 public:
  SimRelay(SimNetwork& network, SimNodeId node, RelayBounds bounds);
  ~SimRelay() override;
  SimRelay(const SimRelay&) = delete;
  SimRelay& operator=(const SimRelay&) = delete;

  Result<Address> listen(const Address& address) override;  // port 0: the node's number + 30 000
  bool expect(const std::string& ticket) override;
  Counters counters() const override;

 private:
  SimNetwork& network_;
  std::shared_ptr<SimRelayPlace> place_;
};

}  // namespace swarmline
