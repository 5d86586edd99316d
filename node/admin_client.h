// Asks a run's coordinator over its admin rpc, blocking: for commands, and with a callback for the
// supervisor's own loop.
//   Errors: kPeerGone when nobody listens there, kDeadline when nobody answers, kRefused without
//           the run's admin secret where it takes one, kUserMistake where it takes links between
//           keys only and none was shown; all as sentences.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/units.h"
#include "engine/net/link_guard.h"
#include "engine/net/network.h"
#include "engine/net/rpc.h"
#include "engine/runtime/runtime.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

inline constexpr Duration kAdminConnectTimeout = std::chrono::seconds(2);
inline constexpr Duration kAdminReplyTimeout = std::chrono::seconds(5);

// One connection to a coordinator, opened at the first request and again after it broke.
//   Thread: control thread. Runtime and network outlive it.
class AdminClient {
 public:
  // `secret`: the run folder's; empty: it may only look.
  AdminClient(Runtime& runtime, Network& network, Address coordinator, std::string secret);
  ~AdminClient();
  AdminClient(const AdminClient&) = delete;
  AdminClient& operator=(const AdminClient&) = delete;

  using Text = std::function<void(Result<std::string>)>;
  void status(Text on_json);
  // Finish the open step, write a checkpoint, end; or, `now`, end at once.
  void stop(bool now, Text on_answer);
  // A checkpoint at the next commit.
  void checkpoint(Text on_answer);
  const Address& address() const { return address_; }

 private:
  struct State;
  using OnReply = std::function<void(Result<Frame>)>;
  void with_channel(std::function<void(Result<std::shared_ptr<RpcChannel>>)> use);
  void call(Frame request, OnReply on_reply);
  template <typename Request>
  void call_with_proof(MessageKind kind, Request request, OnReply on_reply);

  Runtime& runtime_;
  Network& network_;
  Address address_;
  std::string secret_;
  std::shared_ptr<State> state_;
};

// One question with a runtime and a network of its own. `guard`: of its link; null: it is plain.
// `secret`: of who may steer the run; empty: only what anybody may ask.
Result<std::string> ask_status(const Address& coordinator,
                               std::shared_ptr<LinkGuard> guard = nullptr,
                               const std::string& secret = {});
Result<std::string> ask_checkpoint(const Address& coordinator, std::shared_ptr<LinkGuard> guard,
                                   const std::string& secret);
Result<std::string> ask_stop(const Address& coordinator, bool now, std::shared_ptr<LinkGuard> guard,
                             const std::string& secret);

}  // namespace swarmline
