// A relay as one object: its links to the run, the door that peers meet at, and its part in the run
// over both. What `swarmline relay` runs, and what a program embeds.
//   Ownership: the runtime outlives it. It owns network and door.
//   Thread:    control thread.
//   Errors:    of open(): as sentences. Later ones end it: on_finished, as a RelayRole's.
//   Bounds:    RelayBounds.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/net/tcp/tcp_relay.h"
#include "node/admission/peer_guard.h"
#include "node/network_factory.h"
#include "pipeline/relay/relay_role.h"

namespace swarmline {

struct RelayNodeOptions {
  RelayRoleOptions role;
  std::shared_ptr<PeerGuard> guard = nullptr;  // of its link to the coordinator; null: it is plain
};

class RelayNode {
 public:
  RelayNode(AsioRuntime& runtime, RelayNodeOptions options,
            std::function<void(int exit_code, const std::string& why)> on_finished);

  Result<void> open();
  void start();  // after open()
  void request_stop();
  RelayDoor::Counters counters() const { return door_.counters(); }

 private:
  AsioRuntime& runtime_;
  RelayNodeOptions options_;
  std::function<void(int, const std::string&)> on_finished_;
  TcpRelay door_;
  std::unique_ptr<Network> network_;
  std::optional<RelayRole> role_;
};

}  // namespace swarmline
