// Simulated links between the nodes of a SimRuntime. Node N listens as "sim:N" unless a port is
// asked for; the host part of an address is ignored. One connection keeps its frames in order;
// frames of different connections overtake each other by jitter. Frames go through their header's
// encoding, so a frame that could not travel over TCP fails here too.
//   Ownership: node(n) lives as long as the SimNetwork, which outlives the nodes' logic.
//   Errors:    those of engine/net/network.h.
//   Bounds:    SimNetworkOptions::queue_bytes_max unsent bytes a connection.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "engine/net/network.h"
#include "sim/doors/sim_link.h"
#include "sim/doors/sim_runtime.h"
#include "sim/doors/sim_wire.h"

namespace swarmline {

class SimConnection;
class SimNodeNetwork;

class SimNetwork {
 public:
  using Filter = std::function<FrameFate(SimNodeId from, SimNodeId to, const Frame&)>;
  using Tap = std::function<void(SimNodeId from, SimNodeId to, const Frame&)>;

  SimNetwork(SimRuntime& runtime, SimNetworkOptions options);
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  Network& node(SimNodeId node);
  void set_link(SimNodeId from, SimNodeId to, SimLink link);
  void set_card(SimNodeId node, SimCard card);  // none: unlimited

  // From now on the node's links, dialled or accepted, are between keys, and admitted by that guard
  // (link_guard.h): two round trips more than a plain one, of which one is TLS's. None: they are
  // plain. Between an end with a guard and one without there is no link: kDeadline.
  void set_guard(SimNodeId node, std::shared_ptr<LinkGuard> guard);
  // The node takes connections, dials, and says nothing in handshakes.
  void stall_handshakes(SimNodeId node, bool stalled);
  bool stalls_handshakes(SimNodeId node) const { return wire_->speechless.contains(node); }
  using Handshakes = SimWire::Handshakes;
  const Handshakes& handshakes() const { return wire_->handshakes; }
  // Called at each handshake's end, of who was dialled.
  void watch_handshakes(SimWire::OnShaken on_shaken) { wire_->on_shaken = std::move(on_shaken); }

  void set_filter(Filter filter);  // called once for each frame sent; none: all are delivered
  void set_tap(Tap tap);           // called just before each frame is delivered
  // Lets the frames held on the connections from `from` to `to` go, in order. Returns how many were
  // held.
  std::size_t release(SimNodeId from, SimNodeId to);

  // The node's process is gone: its events end (SimRuntime::kill) and the other ends of its
  // connections see kPeerGone one latency later, as after a reset.
  void kill(SimNodeId node);
  // Both ends of every connection between the two see kPeerGone.
  void cut(SimNodeId a, SimNodeId b);

  // The node's machine is without power: as kill(), but nobody hears of it. Who sends to it learns
  // of it by the user timeout, who dials it by no answer. power_on(): the machine is there again,
  // without the process: it refuses and resets.
  void power_off(SimNodeId node);
  void power_on(SimNodeId node);
  // A node that was killed is never asked about again.
  void forget(SimNodeId node);
  // Of the connections that there are between the two, what `from` sends from now on vanishes, and
  // with `both` what `to` sends, too; neither hears of it. New connections are whole.
  void half_open(SimNodeId from, SimNodeId to, bool both);

  // A link that lets nothing through from `from` to `to`: frames, ends of connections and dials
  // wait until unblock(), as TCP would go on sending them. What is on the way arrives.
  void block(SimNodeId from, SimNodeId to);
  void unblock(SimNodeId from, SimNodeId to);

  // The same of all its links: nothing it sends arrives, nothing arrives at it.
  void silence(SimNodeId node, bool mute, bool deaf);
  void unsilence(SimNodeId node);
  // The process has no descriptors left: it dials nobody, and takes nobody who dials it.
  void fill(SimNodeId node, bool full);

  // What stands before it answers, or drops, whoever dials the node from now on; what it dials
  // itself is let through.
  void set_door(SimNodeId node, SimDoor door);

  // Of the frames sent from or to the node, a share arrives damaged, drawn from the seed: in half
  // of those with a payload one of its bits, which its reader has to find; else what a connection
  // checks itself, and the receiver ends it; between keys it always does. 0: none.
  void damage(SimNodeId node, double share);

  SimWire& wire() { return *wire_; }  // for what stands beside it: relays

  // Nothing is blocked, silent, without power or full.
  bool is_open() const;

  struct Counters {
    std::uint64_t frames = 0, bytes = 0;  // delivered
  };
  Counters delivered(SimNodeId from, SimNodeId to) const;
  Counters delivered_total() const;

 private:
  void unheard(SimNodeId node);
  using EndsByRoute = std::map<SimRoute, std::vector<std::shared_ptr<SimConnection>>>;
  void reopened(SimRoute route);
  void reopened(SimRoute route, EndsByRoute& ends);
  void reopened(SimNodeId node);

  std::shared_ptr<SimWire> wire_;  // shared with connections
  std::map<SimNodeId, std::unique_ptr<SimNodeNetwork>> nodes_;
};

}  // namespace swarmline
