// Going on after a recovery: who did not hear of the last commit hears of it now, what peers hold
// is theirs, what nobody holds is leased anew.
//   What:      voids what the coordinator before began (seals, averaging, shadows), restores
//              sources and digests, and collects an open phase from what is in its peers' sums:
//              acknowledged first; of two that say the same index the first keeps it, and the
//              other takes it back.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Errors:    who holds as acknowledged what is another's loses its seat.
#pragma once

#include "base/ids.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/run/recovery.h"
#include "pipeline/coordinator/run/rulings.h"
#include "pipeline/coordinator/run/run_sequence.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/coordinator/steps/leases.h"
#include "pipeline/coordinator/steps/open_phases.h"
#include "pipeline/coordinator/steps/replica_audit.h"
#include "pipeline/ledger/ledger.h"

namespace swarmline {

class Resumption {
 public:
  struct Needs {  // services, and parts below it
    const RunShape& shape;
    Membership& members;
    Ledger& ledger;
    OpenPhases& phases;
    Leases& leases;
    ReplicaAudit& audit;
    Outbox& outbox;
    Rulings& rulings;
  };
  explicit Resumption(const Needs& needs) : in_(needs) {}

  void tell(const CollectedHoldings& collected);
  // The phase was open before, and has just been opened here; it goes on with the codecs that it
  // had.
  void collect(const RunSequence::Opening& opening, const CollectedHoldings& collected);

 private:
  struct Holder {
    Seat seat;
    const wire::PhaseHoldings* held = nullptr;
  };
  void take_acknowledged(const Phase& phase, const Holder& holder);
  void take_reported(const Phase& phase, const Holder& holder);
  bool take(const Phase& phase, const Seat& seat, const wire::Contribution& contribution);

  Needs in_;
};

}  // namespace swarmline
