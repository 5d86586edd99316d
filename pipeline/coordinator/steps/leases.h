// Which source starts which microbatch: what sources want, what they were given.
//   What:      hands out what the ledger has to lease, one index at a time in turn, to each source
//              as far as it wants and its share goes (SourceShares; fixed routes have none);
//              evaluations first, since the step on their version follows them.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Bounds:    one entry a source and one instant a microbatch of an open phase; a pump costs what
//              it hands out, and one look at each source. Speeds are looked up again when the
//              members have changed, and after each step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/run_observer.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/coordinator/steps/lease_depth.h"
#include "pipeline/coordinator/steps/open_phases.h"
#include "pipeline/coordinator/steps/source_shares.h"
#include "pipeline/ledger/ledger.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

class Leases final : public RunObserver {
 public:
  struct Counts {  // since the source was seated, so that messages may cross
    std::uint64_t wanted = 0;
    std::uint64_t granted = 0;
    std::uint64_t finished = 0;  // as it says: of those granted
  };

  Leases(const RunShape& shape, const Alarms& alarms, Ledger& ledger, const OpenPhases& phases,
         const Membership& members, Outbox& outbox);

  void want(const Seat& source, std::uint64_t total, std::uint64_t finished);
  void restore(const Seat& source, const Counts& counts);
  // Something can be leased that could not before.
  void wake() { dirty_ = true; }
  bool is_due() const { return dirty_; }
  void pump();

  // Leases an index that is out once more, to the source with most room that is not its holder, and
  // not much slower than the fastest. False: there is none.
  bool lease_again(const Phase& phase, std::uint32_t index);
  void send_again();  // what lease_again() gave since
  // When it was leased last; empty: never, by this coordinator.
  std::optional<Instant> leased_at(const MicrobatchId& microbatch) const;

  void on_seat_lost(const SeatLoss& lost) override;
  void on_rollback() override;
  void on_retired(const Phase& phase) override;
  void check_invariants() const;

 private:
  struct Source {
    Seat seat;
    Counts counts;
    double share = 0;  // SourceShares::share_of()
    std::uint64_t under_way() const {
      return counts.granted - std::min(counts.finished, counts.granted);
    }
  };
  using Granted = std::map<PeerId, wire::Leases>;
  bool may_take(const Source& source) const;
  void refresh_shares();
  std::vector<LeaseDepth::StageSpeed> stage_speeds() const;
  std::uint64_t under_way() const;  // at all sources
  std::optional<PeerId> idlest(PeerId holder) const;
  bool grant_one(const Phase& phase, Source& source, Granted& granted);
  void send(const Granted& granted);

  const Alarms& alarms_;
  Ledger& ledger_;
  const OpenPhases& phases_;
  const Membership& members_;
  Outbox& outbox_;
  std::map<PeerId, Source> sources_;
  const std::uint32_t window_;  // of a source, usually; 0: routes are fixed
  const std::uint32_t stages_;
  // Nothing: the config says how many, or routes are fixed.
  std::optional<LeaseDepth> depth_;
  SourceShares shares_;
  std::optional<std::uint64_t> shares_of_;  // Membership::changes() when they were made
  Granted again_;
  std::map<Phase, std::vector<Instant>> leased_at_;  // by index; Instant{}: it was not
  bool dirty_ = false;
};

}  // namespace swarmline
