// Those who begin a stage together begin with the same bits.
//   What:      before a start the peers of a stage say what they hold. Of those that differ, most
//              decide (of as many as are wanted there, or are there); the others are refused. Of
//              two that differ nobody knows who is right: the next newcomer goes there, and
//              decides. Where the stage has more than it needs, or the run has trained, nobody is
//              waited for: whoever differs from the first goes.
//   Ownership: what it is made with outlives it. Thread: control thread. Errors: none.
#pragma once

#include <optional>
#include <vector>

#include "base/ids.h"
#include "pipeline/coordinator/members/gathering.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/run/event_log.h"
#include "pipeline/coordinator/run/rulings.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/coordinator/steps/replica_audit.h"

namespace swarmline {

class FirstBits {
 public:
  FirstBits(const RunShape& shape, const Membership& members, const ReplicaAudit& audit,
            const Gathering& gathering, EventLog& events, Rulings& rulings)
      : shape_(shape),
        members_(members),
        audit_(audit),
        gathering_(gathering),
        events_(events),
        rulings_(rulings) {}

  // All who are ready hold the same bits of `version`. Rules that those go who are known to hold
  // others. `starts`: there are enough peers now, so that those who are there decide.
  bool agree(std::uint64_t version, bool starts);
  // Where a newcomer decides.
  std::optional<StageId> in_doubt() const { return doubt_; }

 private:
  bool agree_at(StageId stage, std::uint64_t version, bool starts);
  void refuse(const std::vector<Seat>& wrong, const Seat& right);
  void leave_in_doubt(const ReplicaAudit::Verdict& tie, StageId stage);

  const RunShape& shape_;
  const Membership& members_;
  const ReplicaAudit& audit_;
  const Gathering& gathering_;
  EventLog& events_;
  Rulings& rulings_;
  std::optional<StageId> doubt_, said_;
};

}  // namespace swarmline
