// One end's way from a simulated connection to one between keys: the guard is asked what TLS and
// the words after it ask it for, in their order (engine/net/tcp/tls_handshake.h), with a round trip
// for each. For the files of this folder.
//   Order:     who dials: pinned(); the other's key is there: vouched(), then opening(); its answer
//              is there: judge(). Who is dialled: the other's key and opening are there: admit().
//   Ownership: the connection holds it until it is over; stop() ends it without a word to on_done.
//   Thread:    that of the SimRuntime.
//   Errors:    of on_done, which is called once: those of TlsHandshake.
//   Bounds:    SimNetworkOptions::handshake_max from its beginning to its end; kLinkWordsMax,
//              kLinkVouchersMax.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/net/link_guard.h"
#include "sim/doors/sim_connection.h"
#include "sim/doors/sim_wire.h"

namespace swarmline {

class SimHandshake : public std::enable_shared_from_this<SimHandshake> {
 public:
  // The connection is that of the link then, and not started yet; without one it is closed.
  using Done = std::function<void(Result<void>)>;
  // `binding`: what both ends of this link have, and nobody else. `dialled`: the address, of the
  // end that dials.
  SimHandshake(std::shared_ptr<SimWire> wire, std::shared_ptr<SimConnection> connection,
               std::shared_ptr<LinkGuard> guard, std::string binding,
               std::optional<Address> dialled, Done on_done);
  void start();
  void stop();

 private:
  enum class State : std::uint8_t {
    kAwaitsHello,
    kAwaitsKey,
    kAwaitsOpening,
    kJudges,
    kAwaitsAnswer,
    kOver
  };

  bool dials() const { return dialled_.has_value(); }
  void hear(const SimWords& words);
  void take_key(const SimWords& words);
  void take_opening(const SimWords& words);
  void take_verdict(const Result<LinkGuard::Admission>& verdict);
  void take_answer(const SimWords& words);
  bool learn(const SimWords& words);
  void say(SimWords words);
  void be_admitted(std::string as);
  void over(ErrorCode code, const std::string& why);
  void finish(Result<void> result);

  std::shared_ptr<SimWire> wire_;
  std::shared_ptr<SimConnection> connection_;
  std::shared_ptr<LinkGuard> guard_;
  const std::string binding_;
  const std::optional<Address> dialled_;
  const std::optional<KeyHash> pinned_;
  // What it shows is what it had as it began.
  const std::string public_key_, vouchers_;
  Done on_done_;
  State state_;
  LinkFacts facts_;
  TimerId timer_;
};

}  // namespace swarmline
