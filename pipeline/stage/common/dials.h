// Links of one peer that are not there yet: each is dialled by whichever of its two ends can.
//   What:      dials on demand, and keeps what is to be said meanwhile. Where nobody answers within
//              knobs().call_after, or nobody is there, it has the other end asked to dial this one
//              (the coordinator passes that on), and what waits goes over the link that then comes.
//              The other way round it dials whoever asked for that.
//   Pauses:    a peer that was not reached, or whose link ended young, is dialled again at once the
//              first time, then after pauses that double (knobs: redial_pause_min, _max).
//   Ownership: runtime and network outlive it. Thread: control thread.
//   Errors:    on_failed once for each link that was wanted and can't be had, never inside send():
//              kNotFound: nobody listens at the peer's address; kIo: this end can open no
//              connection; kDeadline, kPeerGone.
//   Bounds:    one dial a peer, kFramesWaitingMax frames of each; connect_timeout, and after it
//              knobs().call_time at most.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/callback_guard.h"
#include "base/ids.h"
#include "engine/net/network.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

// Where links are authenticated, this end's guard has found out whose seat the other's key is.
bool is_seat_of(const Connection& connection, const Seat& seat);
// Closes a connection that nobody listens to.
void refuse_link(const std::shared_ptr<Connection>& connection);

class Dials {
 public:
  static constexpr std::size_t kFramesWaitingMax = 4096;

  struct Hooks {
    std::function<Result<Address>(const Seat&)> address_of;
    // It is whose seat was dialled, and not started yet.
    std::function<void(const Seat&, const std::shared_ptr<Connection>&, std::vector<Frame> waiting)>
        on_made;
    std::function<void(const Seat&, const Error&)> on_failed;
    // Of links that this end can't dial; false: nobody can pass it on now. May be empty.
    std::function<bool(const Seat&)> ask_for_call = {};
    std::function<void(const Seat&)> on_call_failed = {};  // it was asked for, and is not reached
    // Nobody has answered for knobs().call_after; it goes on. May be empty.
    std::function<void(const Seat&)> on_late = {};
  };

  Dials(Runtime& runtime, Network& network, Duration connect_timeout, Hooks hooks);

  void send(const Seat& to, Frame frame) { want(to, std::move(frame)); }
  void reach(const Seat& to) { want(to, std::nullopt); }  // nothing is to be said
  void call(const Seat& to);                              // that peer asks for it
  void nobody_calls(const Seat& to);                      // neither end reaches the other
  void meet(const Seat& to, const Meeting& meeting);      // ... but both the relay
  // A link of that seat came: what was asked for, and what waits for it; none: it was not asked
  // for.
  std::optional<std::vector<Frame>> take(const Seat& from);
  void ended(PeerId peer, Duration lived);  // a link that this end had dialled
  void forget(PeerId peer);                 // its seat is over
  void give_up(PeerId peer);                // without a word to anybody
  void clear();
  void stop();

  std::optional<Seat> under_way(PeerId peer) const;
  std::size_t count() const { return dials_.size(); }

 private:
  struct Dial {
    Seat to;
    std::uint64_t number = 0;  // what an earlier one finds out is late
    std::vector<Frame> waiting;
    bool wanted = false;      // by this end
    bool called = false;      // by the other end
    bool under_way = false;   // a connection
    bool asked = false;       // the other end to call
    bool unanswered = false;  // ... and it won't
    std::optional<Error> failed;
    TimerId late;  // nobody has answered for long
  };
  struct Pace {
    std::uint32_t failures = 0;  // in a row
    Instant due{};
  };

  Dial* find(const Seat& to, std::uint64_t number);
  void want(const Seat& to, std::optional<Frame> frame);
  void begin(Dial& dial);
  void connect(Dial& dial);
  void connected(const Seat& to, std::uint64_t number,
                 const Result<std::shared_ptr<Connection>>& made);
  void met(const Seat& to, std::uint64_t number, const Result<std::shared_ptr<Connection>>& made);
  void fail_dial(const Seat& to, std::uint64_t number, const Error& error);
  void ask(Dial& dial);
  void settle(Dial& dial);
  void not_reached(PeerId peer);

  Runtime& runtime_;
  Network& network_;
  const Duration connect_timeout_;
  const Hooks hooks_;
  std::map<PeerId, Dial> dials_;
  std::uint64_t last_number_ = 0;
  std::map<PeerId, Pace> paces_;
  std::set<PeerId> callers_;  // that called the last time: they are asked at once
  CallbackGuard guard_;
};

}  // namespace swarmline
