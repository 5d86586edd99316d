// A shaped link between two TCP endpoints: whoever connects to it is connected to `to`, and what
// passes is slowed, delayed, cut and corrupted as told. The one way to shape a link in tests,
// benchmarks and chaos runs.
//   What:      "forward" is from those who connect towards `to`, "backward" the way back. All
//              connections share the two lines, as they would share a cable.
//              cut():   the cable is pulled: nothing passes, nobody is told, new connections hang.
//              heal():  it is back: what was held goes on.
//              reset(): every connection is reset at both ends.
//              half_open(end): that end sees every connection reset, the other one nothing at all
//                       until heal(), which resets it there, too. New connections work.
//   Ownership: `runtime` outlives it. Thread: control thread.
//   Errors:    kIo or kNotFound from start(); an endpoint that does not answer resets the
//              connection that asked for it.
//   Bounds:    LinkLine::window_bytes() held per direction, all connections together (one piece
//              each beyond that); then the sender's socket is not read.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/net/network.h"
#include "engine/runtime/asio_runtime.h"
#include "tools/link_proxy/link_shape.h"

namespace swarmline {

enum class LinkEnd : std::uint8_t { kNear, kFar };  // who connected, and `to`
enum class LinkWay : std::uint8_t { kForward = 0, kBackward = 1 };

struct LinkProxyOptions {
  Address listen{"127.0.0.1", 0};
  Address to;
  LinkShape forward;
  LinkShape backward;
  std::uint64_t seed = 1;  // of jitter and corruption
};

struct LinkProxyCounters {
  std::uint64_t connections = 0;    // accepted so far
  std::uint64_t open = 0;           // now
  std::uint64_t forward_bytes = 0;  // delivered
  std::uint64_t backward_bytes = 0;
  std::uint64_t corrupted_bytes = 0;  // both ways
};

class LinkProxy {
 public:
  LinkProxy(AsioRuntime& runtime, LinkProxyOptions options);
  ~LinkProxy();
  LinkProxy(const LinkProxy&) = delete;
  LinkProxy& operator=(const LinkProxy&) = delete;

  Result<Address> start();                        // the bound address
  void set(LinkWay way, const LinkShape& shape);  // for bytes read from now on
  const LinkShape& shape(LinkWay way) const;
  void cut();
  void heal();
  bool is_cut() const;
  void reset();
  void half_open(LinkEnd gone);
  LinkProxyCounters counters() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace swarmline
