// The commit of a step whose rounds are done: the numbers that every replica steps with, durable in
// the journal before anybody hears of them.
//   What:      makes the record and the order from what was reduced, writes the one, tells the
//              other to all who hold the stage's state or follow it.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Errors:    a norm that is not finite is a skip, or ends the run, as the config says; a journal
//              that can't be written is a ruling, and nobody hears of the commit.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "base/ids.h"
#include "engine/store/journal.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/rulings.h"
#include "pipeline/coordinator/run/run_journal.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/coordinator/states/standby_replicas.h"
#include "pipeline/coordinator/states/state_transfer.h"
#include "pipeline/coordinator/steps/commit_order.h"
#include "pipeline/coordinator/steps/commit_round.h"
#include "pipeline/ledger/ledger.h"

namespace swarmline {

class Committer {
 public:
  struct Needs {  // services, and parts below it
    const RunShape& shape;
    Alarms& alarms;
    RunJournal& journal;
    const SessionTable& sessions;
    const Membership& members;
    const Ledger& ledger;
    const CommitRound& round;
    StateTransfer& states;
    StandbyReplicas& standbys;
    Outbox& outbox;
    Rulings& rulings;
  };
  explicit Committer(const Needs& needs) : in_(needs) {}

  std::uint64_t updates() const { return updates_; }  // commits so far that were not skipped
  void begin_with(std::uint64_t updates) { updates_ = updates; }

  // Empty: it could not be committed, which is ruled on.
  std::optional<CommitRecord> commit(Era era);

 private:
  CommitRecord record_of(Era era, const StepScalars& scalars, double norm) const;
  std::set<StageId> keepers() const;
  void tell(CommitOrder order);

  Needs in_;
  std::uint64_t updates_ = 0;
};

}  // namespace swarmline
