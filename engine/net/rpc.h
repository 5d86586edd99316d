// Requests with deadlines and one-way messages over a Connection. An RpcChannel owns the framing of
// one connection: it numbers requests, matches replies, and times out; both ends may call.
//   Thread:  control thread. Handlers are not invoked inside call()/notify().
//   Errors:  the caller gets exactly one answer: the reply, the remote's error (its code and
//            sentence), kDeadline, or kPeerGone when the connection ends first. A reply without a
//            matching request is ignored (it came late).
//   Bounds:  at most kRequestsInFlightMax requests a channel; beyond that call() answers kRefused.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "engine/net/network.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

class RpcChannel : public std::enable_shared_from_this<RpcChannel> {
 public:
  static constexpr std::size_t kRequestsInFlightMax = 4096;

  using Reply = std::function<void(Result<Frame>)>;
  // Answers one request; may be kept and called later, exactly once. Dropped without a call =
  // kPeerGone to the caller: nobody said no.
  using Respond = std::function<void(Result<Frame>)>;
  struct Handlers {
    std::function<void(Frame)> on_message;           // request == 0
    std::function<void(Frame, Respond)> on_request;  // request != 0
    std::function<void(Error)> on_closed;  // last callback; pending calls were answered before
    std::optional<ConnectionBounds> stranger = {};  // as the Connection's
  };

  static std::shared_ptr<RpcChannel> make(Runtime& runtime, std::shared_ptr<Connection> connection);
  virtual ~RpcChannel() = default;
  virtual void start(Handlers handlers) = 0;
  virtual void call(Frame request, Duration deadline, Reply reply) = 0;
  virtual void notify(Frame message) = 0;
  virtual void close() = 0;
  virtual Connection& connection() = 0;
};

}  // namespace swarmline
