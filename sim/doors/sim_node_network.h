// One node's view of the simulated network: it listens, dials, and meets others at relays. For the
// files of this folder.
//   Ownership, thread, errors, bounds: as sim_network.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "engine/net/network.h"
#include "sim/doors/sim_wire.h"

namespace swarmline {

class SimConnection;

class SimNodeNetwork final : public Network {
 public:
  SimNodeNetwork(std::shared_ptr<SimWire> wire, SimNodeId node)
      : wire_(std::move(wire)), node_(node) {}

  Result<Address> listen(const Address& address, Accepted on_accepted) override;
  void stop_listening() override;
  void connect(const Address& address, Duration timeout, Connected on_connected) override;
  void meet(const Meeting& meeting, Duration timeout, Connected on_connected) override;

 private:
  struct Attempt;

  std::uint16_t free_port() const;
  void refuse(const std::shared_ptr<Attempt>& attempt, const Address& address, Duration after);
  void find_no_descriptor(const std::shared_ptr<Attempt>& attempt, const Address& address);
  void end(const std::shared_ptr<Attempt>& attempt, const Address& address, Duration after,
           const Error& error);
  void show(const std::shared_ptr<Attempt>& attempt, const Meeting& meeting);
  void join(const std::shared_ptr<Attempt>& attempt, SimNodeId other,
            const std::shared_ptr<Attempt>& theirs, SimRelayPlace& relay);
  void answer(const std::shared_ptr<Attempt>& attempt, const Address& address, SimNodeId to);
  static std::string binding_of(std::uint64_t end);
  static void shake_hands(const std::shared_ptr<SimWire>& wire,
                          const std::shared_ptr<Attempt>& attempt,
                          const std::shared_ptr<SimConnection>& connection,
                          const std::string& binding, const Address& address, bool dials);
  void answer_between_keys(const std::shared_ptr<Attempt>& attempt, const Address& address,
                           const std::shared_ptr<SimConnection>& ours,
                           const std::shared_ptr<SimConnection>& theirs, Duration back,
                           const SimWire::Listener& listener);

  std::shared_ptr<SimWire> wire_;
  SimNodeId node_;
};

}  // namespace swarmline
