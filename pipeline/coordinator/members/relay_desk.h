// Relays of the run: who passes on links between peers that don't reach each other.
//   What:      takes them as they say hello, hands out tickets for one link each at the relay that
//              has most room, and adds up what they pass on.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Errors:    who speaks another protocol, says too much, or is one relay too many is refused.
//   Bounds:    kRelaysMax.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/net/rpc.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/members/session_table.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/event_log.h"
#include "pipeline/coordinator/run/run_identity.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

class RelayDesk {
 public:
  static constexpr std::size_t kRelaysMax = 64;

  struct Relay {
    SessionPtr session;
    std::string name;
    std::string address;
    std::uint32_t links_max = 0;
    std::uint32_t links = 0;  // as it said last, and those given since
    std::uint64_t bytes = 0;  // passed on
  };
  struct Meeting {
    std::string address;
    std::string ticket;
  };

  RelayDesk(const RunIdentity& identity, Alarms& alarms, Outbox& outbox, EventLog& events)
      : identity_(identity), alarms_(alarms), outbox_(outbox), events_(events) {}

  void on_hello(const SessionPtr& session, const Frame& frame, RpcChannel::Respond respond);
  void on_message(const SessionPtr& session, const Frame& frame);
  void on_closed(const SessionPtr& session);
  bool has(const SessionPtr& session) const;
  bool any() const { return !relays_.empty(); }

  // For a link of two peers: its relay has been told; none: no relay has room.
  std::optional<Meeting> meet();
  const std::vector<Relay>& relays() const { return relays_; }
  void tell_all(const Frame& frame);

 private:
  Result<void> check(const wire::RelayHello& hello) const;
  std::string make_ticket();

  const RunIdentity& identity_;
  Alarms& alarms_;
  Outbox& outbox_;
  EventLog& events_;
  std::vector<Relay> relays_;
  std::uint64_t tickets_ = 0;
};

}  // namespace swarmline
