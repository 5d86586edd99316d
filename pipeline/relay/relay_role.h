// A relay's part in a run: it tells the coordinator where it is, expects the tickets that it is
// told of, and says now and then what it passes on.
//   What:      dials the coordinators that it knows in turn until one takes it, and again whenever
//              that one is gone.
//   Ownership: runtime, network and door outlive it. Thread: control thread.
//   Errors:    on_finished, once: 0 the run has ended, 1 nobody answered for as long as its
//              patience, 2 it can't listen there, 3 it was not taken, 130 interrupted.
//   Bounds:    RelayBounds of its door; a try each knobs().rejoin_pause.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/callback_guard.h"
#include "engine/net/relay_door.h"
#include "engine/net/rpc.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

struct RelayRoleOptions {
  std::vector<Address> coordinators;  // at least one
  std::string name;
  Address listen;
  std::string advertise;  // empty: what it listens on, as the coordinator sees it
  RelayBounds bounds;
  Duration patience = std::chrono::minutes(10);
};

class RelayRole {
 public:
  static constexpr Duration kStatePeriod = std::chrono::seconds(1);

  RelayRole(Runtime& runtime, Network& network, RelayDoor& door, RelayRoleOptions options,
            std::function<void(int exit_code, const std::string& why)> on_finished);
  ~RelayRole();
  RelayRole(const RelayRole&) = delete;
  RelayRole& operator=(const RelayRole&) = delete;

  void start();
  void request_stop() { finish(130, "interrupted"); }

 private:
  void connect();
  void say_hello(const std::shared_ptr<Connection>& connection);
  void taken();
  void try_again(const std::string& why);
  void on_message(const Frame& frame);
  void say_state();
  void finish(int exit_code, const std::string& why);

  Runtime& runtime_;
  Network& network_;
  RelayDoor& door_;
  const RelayRoleOptions options_;
  const std::function<void(int, const std::string&)> on_finished_;
  Address bound_;
  std::shared_ptr<RpcChannel> channel_;
  std::size_t tried_ = 0;
  Instant search_until_{};
  bool taken_ = false, finished_ = false;
  CallbackGuard guard_;
};

}  // namespace swarmline
