// Stages all of whose peers are silent. What they hold nobody else does: the run waits for them as
// long as that costs less than going back to its newest checkpoint without them.
//   What:      of those that are silent it gives up at once whoever others of its stage can do
//              without; the last ones of a stage it waits for, and asks their addresses: a process
//              that is gone refuses. People are told that the run waits, and how long at most.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Bounds:    one entry a stage; run/bargain.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "pipeline/coordinator/members/failure_detector.h"
#include "pipeline/coordinator/members/link_probe.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/event_log.h"
#include "pipeline/coordinator/run/rulings.h"
#include "pipeline/coordinator/run/run_observer.h"

namespace swarmline {

class Vigil final : public RunObserver {
 public:
  struct Needs {  // services, and parts below it
    Alarms& alarms;
    const FailureDetector& detector;
    const Membership& members;
    LinkProbe& probe;
    EventLog& events;
    Rulings& rulings;
  };
  struct Questions {
    std::function<bool(StageId)> has_heir;  // another than its members can serve the stage
    std::function<Duration()> patience;     // what waiting is worth now
  };
  Vigil(const Needs& needs, Questions questions) : in_(needs), ask_(std::move(questions)) {}

  // All that are silent now, whatever was said of them before.
  void judge(const std::vector<Seat>& silent);
  bool waits_for(StageId stage) const { return stages_.contains(stage); }
  void restart_deadlines();
  std::uint32_t given_up() const { return given_up_; }  // waits, ever

  void on_rollback() override { stages_.clear(); }

 private:
  struct Wait {
    Instant since{};
    Duration patience{};
  };
  bool is_dark(StageId stage, const std::vector<Seat>& silent) const;
  bool goes_on_waiting(StageId stage, const std::vector<Seat>& silent);

  Needs in_;
  Questions ask_;
  std::map<StageId, Wait> stages_;
  std::uint32_t given_up_ = 0;
};

}  // namespace swarmline
