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

#include "engine/net/network.h"
#include "sim/doors/sim_link.h"
#include "sim/doors/sim_runtime.h"

namespace swarmline {

struct SimWire;

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

  // A link that lets nothing through from `from` to `to`: frames, ends of connections and dials
  // wait until unblock(), as TCP would go on sending them. What is on the way arrives.
  void block(SimNodeId from, SimNodeId to);
  void unblock(SimNodeId from, SimNodeId to);

  // Of the frames sent from or to the node, a share arrives damaged, drawn from the seed: in half
  // of those with a payload one of its bits, which its reader has to find; else what a connection
  // checks itself, and the receiver ends it. 0: none.
  void damage(SimNodeId node, double share);

  struct Counters {
    std::uint64_t frames = 0, bytes = 0;  // delivered
  };
  Counters delivered(SimNodeId from, SimNodeId to) const;
  Counters delivered_total() const;

 private:
  class NodeNetwork;

  std::shared_ptr<SimWire> wire_;  // shared with connections
  std::map<SimNodeId, std::unique_ptr<NodeNetwork>> nodes_;
};

}  // namespace swarmline
