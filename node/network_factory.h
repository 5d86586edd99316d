// How a node reaches others: it makes its network by what its owner gives it. In production that is
// TCP; a tool that disturbs runs gives it a network of its own (tools/chaos/chaos_tap.h).
//   Ownership: the runtime outlives the network. Thread: control thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/net/link_guard.h"
#include "engine/net/network.h"
#include "engine/runtime/asio_runtime.h"

namespace swarmline {

// Who asks for a network.
struct NetworkUser {
  std::string name;                            // "coordinator", "standby", or a peer's
  std::function<void(double)> slow_down = {};  // its device, by a factor >= 1; empty: it has none
  std::shared_ptr<LinkGuard> guard = nullptr;  // of its links; null: they are plain
};
using NetworkFactory =
    std::function<Result<std::unique_ptr<Network>>(AsioRuntime& runtime, NetworkUser user)>;

Result<std::unique_ptr<Network>> make_tcp_network(AsioRuntime& runtime, NetworkUser user);

}  // namespace swarmline
