// A relay between TCP sockets (relay_door.h). What passes is the ends' own stream, sealed by their
// TLS where they have keys: the relay has none of them.
//   Words:     whoever connects says kRelayHello and a ticket; it hears one byte: kRelayJoined when
//              the other end is there (what it says from then on is the other end's), or
//              kRelayNotTaken, and the end.
//   Ownership: the runtime outlives it. Thread: control thread.
//   Errors:    an end that is gone, or whose bytes nobody acknowledges for
//              TcpNetwork::kSilentPeerMax, ends the link at the other end, too.
//   Bounds:    RelayBounds; connections that have shown no ticket yet: a few more than all links
//              have ends, of which the oldest gives way.
#pragma once

#include <memory>
#include <string_view>

#include "engine/net/relay_door.h"
#include "engine/runtime/asio_runtime.h"

namespace swarmline {

inline constexpr std::string_view kRelayHello = "swrelay1";
inline constexpr char kRelayJoined = 0, kRelayNotTaken = 1;

class TcpRelay final : public RelayDoor {
 public:
  TcpRelay(AsioRuntime& runtime, RelayBounds bounds);
  ~TcpRelay() override;
  TcpRelay(const TcpRelay&) = delete;
  TcpRelay& operator=(const TcpRelay&) = delete;

  Result<Address> listen(const Address& address) override;
  bool expect(const std::string& ticket) override;
  Counters counters() const override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace swarmline
