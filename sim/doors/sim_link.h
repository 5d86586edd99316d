// What simulated links are like, and what a filter may do to a frame: plain values.
//   Units: bytes per second of virtual time.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "base/limits.h"
#include "base/units.h"
#include "engine/net/frame.h"
#include "sim/doors/sim_runtime.h"

namespace swarmline {

using SimRoute = std::pair<SimNodeId, SimNodeId>;  // from, to

struct SimLink {
  Duration latency = std::chrono::microseconds(200);  // one way, least
  Duration jitter{};            // mean of an exponential draw added to each frame
  double bytes_per_second = 0;  // of the directed pair, shared by its connections; 0: unlimited
  bool small_between = false;   // small frames go between the parts of large ones, as in a card
};

// What all connections of a node share, each way.
struct SimCard {
  double up_bytes_per_second = 0;  // > 0
  double down_bytes_per_second = 0;
};

// What becomes of connections that others open to a node.
enum class SimDoor : std::uint8_t {
  kOpen,
  kDrops,    // as a firewall does: nobody answers
  kRefuses,  // as a router does: nobody listens
};

// As TcpNetwork::kSilentPeerMax.
inline constexpr Duration kSimUserTimeout = std::chrono::seconds(30);

struct SimNetworkOptions {
  SimLink link;  // where neither set_link() nor link_between says anything
  std::uint64_t queue_bytes_max = Limits::connection_queue_bytes_max;
  std::uint64_t arrival_bytes_min = Limits::arrival_bytes_min;  // reported at each quarter
  // An end whose bytes nobody acknowledges for so long is over.
  Duration user_timeout = kSimUserTimeout;
  // Of a link between keys, in all, as TcpOptions::handshake_max.
  Duration handshake_max = std::chrono::seconds(10);
  // What a frame costs on the links and counts in the counters; none: its wire_bytes(). So a small
  // stand-in travels as the tensor that it stands for, and no queue is too long.
  std::function<std::uint64_t(SimNodeId from, SimNodeId to, const Frame&)> charged_bytes;
  // A frame that stands for many small ones, between which others of its connection go.
  std::function<bool(const Frame&)> stands_for_many;
  std::function<const SimLink*(SimRoute)> link_between;  // null, or none: `link`
};

// What a filter decides about one frame at the instant it is sent.
struct FrameFate {
  enum class Kind {
    kDeliver,
    kDelay,           // by `delay` more; later frames of the connection wait behind it
    kHold,            // until release(from, to); later frames of the connection wait behind it
    kDropConnection,  // the frame is lost and both ends see kPeerGone
  };
  Kind kind = Kind::kDeliver;
  Duration delay{};
};

}  // namespace swarmline
