// Whether each microbatch that a step waits for is somebody's: who relies on a try that nobody
// makes waits for ever.
//   What:   sampled now and then; a microbatch that the ledger relies on somebody for, and that no
//           process tries or has yet to report, is an orphan. It may be on its way for a while; one
//           that stays an orphan through calm samples over `patience` is a violation.
//   Thread: any; pure. Bounds: one entry an orphan.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "base/ids.h"
#include "base/units.h"

namespace swarmline {

class OrphanWatch {
 public:
  explicit OrphanWatch(Duration patience) : patience_(patience) {}

  // `calm`: nothing is held up on its way now; else all begin to be orphans anew. Returns one that
  // has been an orphan for too long.
  std::optional<MicrobatchId> sample(Instant now, const std::set<MicrobatchId>& relied_on,
                                     const std::set<MicrobatchId>& tried, bool calm);

 private:
  Duration patience_;
  std::map<MicrobatchId, Instant> since_;
};

}  // namespace swarmline
