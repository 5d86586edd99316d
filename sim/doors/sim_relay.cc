#include "sim/doors/sim_relay.h"

#include "sim/doors/sim_connection.h"
#include "sim/doors/sim_wire.h"

namespace swarmline {

namespace {
constexpr std::uint16_t kFirstPort = 30'000;
}  // namespace

SimRelay::SimRelay(SimNetwork& network, SimNodeId node, RelayBounds bounds)
    : network_(network), place_(std::make_shared<SimRelayPlace>()) {
  place_->node = node;
  place_->bounds = bounds;
}

SimRelay::~SimRelay() {
  std::erase_if(network_.wire().relays,
                [this](const auto& entry) { return entry.second == place_; });
  for (const auto& end : place_->ends)
    if (const auto connection = std::static_pointer_cast<SimConnection>(end.lock()))
      connection->break_off({ErrorCode::kPeerGone, "the relay is gone"});
}

Result<Address> SimRelay::listen(const Address& address) {
  const std::uint16_t port =
      address.port != 0 ? address.port : static_cast<std::uint16_t>(kFirstPort + place_->node);
  if (!network_.wire().relays.emplace(port, place_).second)
    return fail(ErrorCode::kIo, "another relay listens there");
  return Address{"sim", port};
}

bool SimRelay::expect(const std::string& ticket) {
  if (counters().links + place_->tickets.size() >= 2 * std::size_t{place_->bounds.links_max})
    return false;
  place_->tickets.insert(ticket);
  return true;
}

RelayDoor::Counters SimRelay::counters() const {
  Counters counters{.links_ever = place_->links_ever, .not_taken = place_->not_taken};
  for (const auto& end : place_->ends) {
    const auto connection = end.lock();
    if (!connection) continue;
    counters.bytes += connection->counters().bytes_sent;
    ++counters.links;
  }
  counters.links /= 2;
  return counters;
}

}  // namespace swarmline
