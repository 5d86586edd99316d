// What peers that have to go before their step ends give to mates, so that nobody computes it
// again.
//   What:      looks at each peer that drains and has a time to go at (a notice said it, or it is a
//              mover, which goes as soon as it can), owns contributions of a step that is not
//              sealed, and has nothing in flight. If the step, as fast as it gets on, ends after
//              that time, the peer copies its sums, a mate fetches them, and the ledger changes the
//              owner, in that order.
//   Invariant: the owner changes only while it owns exactly what its copy holds, and its taker has
//              all of that apart.
//   Losses:    whatever comes before that, a seat that ends or the step's seal, calls it off; what
//              the peer owned is then lost with its seat, as without it. Another coordinator knows
//              of nothing that was under way.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Errors:    a copy that is not what the ledger says is asked for once more at the next look.
//   Bounds:    one at a time for each peer and step; a look costs one pass over the cells of the
//              stage for each peer that drains so.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/event_log.h"
#include "pipeline/coordinator/run/run_observer.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/coordinator/steps/open_phases.h"
#include "pipeline/ledger/ledger.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

class SumHandOvers final : public RunObserver {
 public:
  SumHandOvers(const RunShape& shape, Alarms& alarms, const Membership& members, Ledger& ledger,
               const OpenPhases& phases, Outbox& outbox, EventLog& events)
      : shape_(shape),
        alarms_(alarms),
        members_(members),
        ledger_(ledger),
        phases_(phases),
        outbox_(outbox),
        events_(events) {}

  void look();  // for those that have to go before their step ends
  void on_frozen(const Seat& giver, const wire::SumsFrozen& frozen);
  // True: the owner has changed.
  bool on_taken(const Seat& taker, const wire::SumsTaken& taken);

  void on_seat_lost(const SeatLoss& lost) override;
  void on_rollback() override;
  void on_retired(const Phase& phase) override;

 private:
  using Key = std::pair<Phase, PeerId>;  // the giver's
  struct HandOver {
    Seat giver;
    Seat taker;
    std::vector<std::uint32_t> indices;  // once it is frozen
  };
  struct Pace {  // of a step, from the first look at it on
    Instant since;
    std::uint32_t owned = 0;  // by its slowest stage, then
  };
  void consider(const Member& member, const Phase& phase);
  bool ends_too_late(const Phase& phase, Instant goes_at);
  std::optional<Seat> taker_for(const Key& key, const Member& giver) const;
  std::vector<std::uint32_t> owned_by(const Phase& phase, const Seat& seat) const;
  void call_off(const Key& key);
  void move(const Key& key, const HandOver& hand_over);

  const RunShape& shape_;
  Alarms& alarms_;
  const Membership& members_;
  Ledger& ledger_;
  const OpenPhases& phases_;
  Outbox& outbox_;
  EventLog& events_;
  std::map<Key, HandOver> under_way_;
  std::map<Key, std::set<PeerId>> refused_by_;
  std::map<Phase, Pace> paces_;
};

}  // namespace swarmline
