// What all connections of a SimNetwork share: how long bytes take, which ways are blocked, what is
// damaged, who listens.
//   What:      links and cards have queues of their own; a passage joins them.
//   Ownership: shared by the network and its connections.
//   Thread:    that of the SimRuntime.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/rng.h"
#include "engine/net/link_guard.h"
#include "engine/net/network.h"
#include "engine/net/relay_door.h"
#include "sim/doors/sim_link.h"
#include "sim/doors/sim_runtime.h"

namespace swarmline {

class SimConnection;

// Ports and the numbers of connections' ends share one space.
inline SimEventSource socket_of(std::uint64_t end) {
  return (kSimSocketMin + 65'536 + static_cast<SimEventSource>(end)) & ~kSimSocketEnd;
}
inline SimEventSource listening_socket(std::uint16_t port) {
  return kSimSocketMin + port;
}

// A relay as its network sees it (sim_relay.h).
struct SimRelayPlace {
  SimNodeId node = 0;
  RelayBounds bounds;
  std::set<std::string> tickets;
  // By ticket, who is there already.
  std::map<std::string,
           std::function<void(SimNodeId other, const std::shared_ptr<void>& their_attempt,
                              const std::shared_ptr<SimRelayPlace>& relay)>>
      first;
  std::vector<std::weak_ptr<Connection>> ends;
  std::uint64_t not_taken = 0, links_ever = 0;
};

struct SimWire {
  struct Listener {
    SimNodeId node;
    Network::Accepted on_accepted;
    std::uint64_t number = 0;  // which of all that ever were
  };
  // Of links between keys.
  struct Handshakes {
    std::uint64_t made = 0;      // at both ends
    std::uint64_t failed = 0;    // of who was dialled, whatever the reason
    std::uint64_t refused = 0;   // of these, by its guard and for good
    std::uint64_t late = 0;      // ends whose time was up
    std::uint64_t given_up = 0;  // ends whose dial's was, before that
  };
  using OnShaken = std::function<void(SimNodeId dialled_by, SimNodeId at, const Result<void>&)>;
  // When the last of some bytes leaves, and when it is there.
  struct Passage {
    Instant leaves, arrives;
  };
  enum class Damage : std::uint8_t { kNone, kPayload, kFrame };
  struct Delivered {
    std::uint64_t frames = 0, bytes = 0;
  };

  SimWire(SimRuntime& r, SimNetworkOptions o)
      : runtime(r), options(std::move(o)), rng(r.rng("network")), damage_rng(r.rng("damage")) {}

  const SimLink& link_of(SimRoute route) const;
  Duration one_way(SimRoute route);
  // What is charged more than a frame can have stands for many, sent between those of others.
  bool is_stream(const Frame* frame, std::uint64_t bytes) const {
    return bytes > Limits::frame_payload_bytes_max ||
           (frame != nullptr && options.stands_for_many && options.stands_for_many(*frame));
  }
  // If they join the queues now.
  Passage passage(SimRoute route, std::uint64_t bytes, bool streams);
  std::uint64_t bytes_of(SimRoute route, const Frame& frame) const {
    return options.charged_bytes ? options.charged_bytes(route.first, route.second, frame)
                                 : frame.wire_bytes();
  }
  Damage draw_damage(SimRoute route, const Frame& frame);
  bool is_blocked(SimRoute route) const {
    return blocked.contains(route) || mute.contains(route.first) || deaf.contains(route.second);
  }
  // Bytes sent now arrive, and so does the word that they did.
  bool is_heard(SimRoute route) const {
    return !is_blocked(route) && !is_blocked({route.second, route.first}) &&
           !dark.contains(route.second);
  }
  const std::shared_ptr<Delivered>& delivered_over(SimRoute route) {
    std::shared_ptr<Delivered>& counters = delivered[route];
    if (!counters) counters = std::make_shared<Delivered>();
    return counters;
  }
  // Now, or when the direction is open again.
  void when_open(SimRoute route, std::function<void()> fn);

  void hurts(SimRoute route) {
    runtime.hurts(route.first);
    runtime.hurts(route.second);
  }

  SimRuntime& runtime;
  SimNetworkOptions options;
  Rng rng, damage_rng;
  std::function<FrameFate(SimNodeId from, SimNodeId to, const Frame&)> filter;
  std::function<void(SimNodeId from, SimNodeId to, const Frame&)> tap;
  std::map<SimRoute, SimLink> links;
  std::map<SimRoute, Instant> link_free_at;
  struct Way {  // through a card, or over a link where small frames go between
    Instant free_at, streaming_until;
  };
  std::map<SimRoute, Way> link_ways;
  struct Card {
    SimCard rates;
    Way up, down;
  };
  std::unordered_map<SimNodeId, Card> cards;  // never iterated
  std::set<SimRoute> blocked;
  std::set<SimNodeId> mute, deaf;      // nothing leaves it, nothing reaches it
  std::set<SimNodeId> dark;            // without power: nothing there answers
  std::set<SimNodeId> full;            // it can open no more connections
  std::map<SimNodeId, SimDoor> doors;  // of those that take not everybody who dials them
  std::map<SimRoute, std::vector<std::function<void()>>> waiting;  // until it is open
  std::map<SimNodeId, double> damaged;                             // and the share
  std::map<SimRoute, std::shared_ptr<Delivered>> delivered;
  std::map<std::uint16_t, Listener> listeners;
  std::map<std::uint16_t, std::shared_ptr<SimRelayPlace>> relays;  // by port
  std::map<std::uint16_t, SimNodeId> dark_ports;                   // of those without power
  std::map<std::uint64_t, std::shared_ptr<SimConnection>> ends;    // until closed
  std::uint64_t last_end = 0, last_listener = 0;
  std::map<SimNodeId, std::shared_ptr<LinkGuard>> guards;
  std::set<SimNodeId> speechless;  // they say nothing in handshakes
  Handshakes handshakes;
  OnShaken on_shaken;
};

}  // namespace swarmline
