#include "node/network_factory.h"

#include <utility>

#include "engine/net/tcp/tcp_network.h"

namespace swarmline {

Result<std::unique_ptr<Network>> make_tcp_network(AsioRuntime& runtime, NetworkUser user) {
  return std::make_unique<TcpNetwork>(runtime, TcpOptions{.guard = std::move(user.guard)});
}

}  // namespace swarmline
