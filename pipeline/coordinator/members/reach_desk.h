// Which peers take connections, and links between two peers that one of them alone can dial.
//   What:      where links have keys, connects to a newcomer's address once before it has a seat,
//              if that is the host's that it comes from, and looks at the key that answers. Later,
//              of two peers whose link this one can't dial, the other is asked to dial; where
//              neither can, both are told a relay to meet at, if there is one.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Errors:    none: whoever is not reached joins all the same. Two that do not reach each other
//              are told, and said in an event, a line a minute at most.
//   Bounds:    knobs().probe_time for a newcomer, which is dialled twice at the most, kProbesMax at
//              a time (of more it is not known); kCallsMax that one peer asks for in a second;
//              kCallsKept that are remembered, for kCallLife; pairs out of reach as long as
//              knobs().apart_time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/ids.h"
#include "base/limits.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/members/relay_desk.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/event_log.h"
#include "pipeline/coordinator/run/run_observer.h"
#include "pipeline/coordinator/run/run_shape.h"

namespace swarmline {

class ReachDesk final : public RunObserver {
 public:
  static constexpr std::uint32_t kProbesMax = 256;
  static constexpr std::uint32_t kCallsMax = 2 * std::uint32_t{Limits::stage_peers_max};
  static constexpr std::size_t kCallsKept = 65'536;
  static constexpr Duration kCallLife = std::chrono::seconds(60);
  static constexpr Duration kLinePause = std::chrono::seconds(60);

  struct Needs {
    Network& network;
    Alarms& alarms;
    const SessionTable& sessions;
    const Membership& members;
    RelayDesk& relays;
    Outbox& outbox;
    EventLog& events;
  };
  explicit ReachDesk(const Needs& needs) : in_(needs) {}

  // Whether all is known of that newcomer that will be (Session::reach). If not, it is being asked,
  // and `known` is called when it is.
  bool knows(const SessionPtr& session, const wire::Hello& hello, std::function<void()> known);

  // Where a newcomer should serve, instead of `chosen` (none: where most is missing), so that it
  // needs no link to others that nobody reaches either. Of stages that lack peers; none: as chosen.
  std::optional<StageId> place(Reach newcomer, std::optional<StageId> chosen,
                               const RunShape& shape) const;

  void on_call_me(const Seat& from, const wire::CallMe& call);
  void on_out_of_reach(const Seat& from, const wire::OutOfReach& message);
  // Neither reached the other a while ago.
  bool are_apart(PeerId one, PeerId other) const;
  // Nobody reaches either of them, as far as is known.
  bool can_hardly_meet(PeerId one, PeerId other) const;

  void on_seat_lost(const SeatLoss& lost) override;
  void on_rollback() override;

 private:
  using Pair = std::pair<PeerId, PeerId>;
  struct Asked {
    Instant since{};
    std::uint32_t calls = 0;  // since then
  };

  struct Probe {
    Address address;
    std::string key;  // that is to answer
    Instant until{};
    std::function<void(bool answers)> reached;
    bool is_second = false;
  };

  std::size_t out_of_reach_at(StageId stage, const RunShape& shape) const;
  void probe(const SessionPtr& session, const Address& address, const std::string& key,
             std::function<void()> known);
  void dial(Probe probe);
  bool may_ask(PeerId peer);
  bool hears(const Seat& seat) const;
  bool meet(const Seat& asker, const Seat& beyond);
  void nobody_calls(const Seat& asker, const Seat& beyond);
  void forget_old_calls();
  void say_apart(const Seat& one, const Seat& other);

  Needs in_;
  std::uint32_t probes_ = 0;       // under way
  std::map<Pair, Instant> calls_;  // whom who was asked to dial
  std::map<PeerId, Asked> asked_;  // of each that asks
  std::map<Pair, Instant> apart_;  // the lower number first
  Instant said_{};                 // the last event
};

}  // namespace swarmline
