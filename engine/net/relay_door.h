// Where two ends meet that can't dial each other: a relay joins the two that show it one ticket,
// and passes on what each says, unread.
//   What:      a ticket is told to the relay first, then to both ends, and is good once.
//   Thread:    control thread.
//   Errors:    of listen(): as a network's. Who shows no ticket that is expected is not taken.
//   Bounds:    RelayBounds.
//   Backends:  TcpRelay, SimRelay.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/units.h"
#include "engine/net/network.h"

namespace swarmline {

inline constexpr std::size_t kRelayTicketBytes = 16;  // random

struct RelayBounds {
  std::uint32_t links_max = 64;         // at a time; of tickets that wait, as many again
  double bytes_per_second = 0;          // of all links, both ways together; 0: no bound
  std::uint32_t buffer_bytes = 65'536;  // of each link and way, held here
  Duration ticket_life = std::chrono::seconds(30);
  Duration hello_max = std::chrono::seconds(5);  // for a ticket, of who has connected
};

class RelayDoor {
 public:
  struct Counters {
    std::uint64_t links = 0;  // now
    std::uint64_t links_ever = 0;
    std::uint64_t bytes = 0;      // passed on
    std::uint64_t not_taken = 0;  // connections
  };

  virtual ~RelayDoor() = default;
  virtual Result<Address> listen(const Address& address) = 0;
  // False: it has as many links and tickets as it takes.
  virtual bool expect(const std::string& ticket) = 0;
  virtual Counters counters() const = 0;
};

}  // namespace swarmline
