// Stages that nobody serves any more and no shadow can take over, where somebody may have what is
// committed all the same: who lost its seat since the newest commit kept a copy, and has it until
// it holds the state of the stage where it is seated next, from where it is called back; what a
// joiner or a shadow fetches may be there already; a shadow has it whose host is the last of its
// own stage, to which one such is coming back.
//   What:      the run waits for them. Who comes back to the stage and says that it kept that
//              version begins with its own copy (StateTransfer), and goes on inside the open step.
//              Nothing can be committed until then.
//   Life:      emptied -> (one comes back with a copy) heir -> (it holds what is committed) served,
//              or taken over by a shadow.
//   Errors:    all that could come refuse, come back without it, or don't come: the stage is gone.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Bounds:    one entry a stage, one number a peer; knobs().return_time to come back, but no
//              longer than waiting is worth (run/bargain.h), and build_time to begin.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/ids.h"
#include "base/units.h"
#include "pipeline/coordinator/members/link_probe.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/event_log.h"
#include "pipeline/coordinator/run/rulings.h"
#include "pipeline/coordinator/run/run_observer.h"
#include "pipeline/coordinator/run/run_sequence.h"
#include "pipeline/coordinator/states/shadow_desk.h"
#include "pipeline/coordinator/states/state_transfer.h"
#include "pipeline/coordinator/states/takeovers.h"

namespace swarmline {

class KeptHeirs final : public RunObserver {
 public:
  struct Needs {  // services, and parts below it
    Alarms& alarms;
    const RunSequence& sequence;
    const Membership& members;
    const ShadowDesk& shadows;
    const StateTransfer& states;
    Takeovers& takeovers;
    LinkProbe& probe;
    EventLog& events;
    Rulings& rulings;
  };
  KeptHeirs(const Needs& needs, std::function<Duration()> patience)
      : in_(needs), patience_(std::move(patience)) {}

  // It served that stage, and is told to keep what it has, or has kept it since.
  void may_keep(PeerId peer, StageId stage);
  // It has another seat, and has said by then what it kept.
  void came_back(PeerId peer);
  // The stage's last member is lost. False: nobody else can have its state.
  bool await(const SeatLoss& last);
  bool any() const { return !emptied_.empty(); }
  // Who kept this stage's state is to begin there: nobody else has it, or the one that has is to
  // take another stage over.
  bool wants_back(StageId stage) const;

  // ---- Settling ----
  void wake() { dirty_ = true; }  // somebody may serve it now, or time has passed
  bool is_due() const { return dirty_ && !emptied_.empty(); }
  void check();
  void restart_deadlines();

  void on_seat_lost(const SeatLoss& lost) override;
  void on_retired(const Phase& phase) override;
  void on_rollback() override;

 private:
  struct Emptied {
    SeatLoss last;  // who served it, and how that ended
    Duration patience{};
    bool has_heir = false;
    std::optional<PeerId> called;  // back, the newest
    Instant until{};
  };
  bool has_heir(StageId stage) const;
  bool has_fetched_perhaps(StageId stage) const;
  bool may_be_freed(StageId stage) const;
  // Those whose peers have shadows that hold what is committed of `stage`.
  std::set<StageId> stages_of_bound_shadows(StageId stage) const;
  bool is_away(StageId stage, std::optional<PeerId> besides = {}) const;
  bool may_be_called_back(StageId stage) const;
  void call_back(StageId stage, Emptied& emptied);
  bool is_hopeless(StageId stage, Emptied& emptied) const;
  void ask_whether_they_live(StageId stage);

  Needs in_;
  std::function<Duration()> patience_;
  std::map<StageId, std::set<PeerId>> away_;  // since the newest commit
  std::map<StageId, Emptied> emptied_;
  bool dirty_ = false;
};

}  // namespace swarmline
