// The end of a step that somebody slow holds up: what is still out is leased a second time, to
// sources that have nothing else to do. Whichever try ends first counts; the ledger sees to that.
//   What:      knows how long a step's reports usually pause, and how long its microbatches are
//              out. When all is leased it leases once more: each that is out, once reports have
//              paused for longer; and each that has been out for longer, though reports come: one
//              peer that is slow reports now and then. As far as the budget goes that these leases
//              share with the early second tries of peers.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Bounds:    one timer; each microbatch of an open step once.
//   Source:    backup tasks: Dean and Ghemawat, OSDI 2004, section 3.6.
#pragma once

#include <map>
#include <set>

#include "base/ids.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/run_lifecycle.h"
#include "pipeline/coordinator/run/run_observer.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/coordinator/run/run_stats.h"
#include "pipeline/coordinator/steps/leases.h"
#include "pipeline/coordinator/steps/open_phases.h"
#include "pipeline/coordinator/steps/report_pace.h"
#include "pipeline/coordinator/steps/usual_longest.h"
#include "pipeline/ledger/ledger.h"
#include "pipeline/protocol/hedge_budget.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

class StragglerDetector final : public RunObserver {
 public:
  StragglerDetector(const RunShape& shape, Alarms& alarms, const RunLifecycle& life,
                    const Ledger& ledger, const OpenPhases& phases, Leases& leases, RunStats& stats)
      : shape_(shape),
        alarms_(alarms),
        life_(life),
        ledger_(ledger),
        phases_(phases),
        leases_(leases),
        stats_(stats),
        hedges_(shape.config.wiring.hedge_share, shape.microbatches_of(PhaseKind::kTrain)) {}

  void on_report(const wire::Report& report);
  void on_reduced(const wire::Reduced& reduced) {
    hedges_.charge(reduced.boundary().early_tries());
  }
  void on_rollback() override {
    backed_up_.clear();
    longest_out_.clear();
    pace_.forget_all();
  }
  void on_retired(const Phase& phase) override;

 private:
  void watch_tail(Instant due);
  void on_tail_timer(Instant due);
  bool is_held_up(const Phase& phase) const;
  bool is_out_for_long(const MicrobatchId& microbatch, Instant now) const;
  // All that is out, or what is out for long.
  void back_up(const Phase& phase, bool all);

  const RunShape& shape_;
  Alarms& alarms_;
  const RunLifecycle& life_;
  const Ledger& ledger_;
  const OpenPhases& phases_;
  Leases& leases_;
  RunStats& stats_;
  HedgeBudget hedges_;
  ReportPace pace_;
  std::map<Phase, Duration> longest_out_;  // before a report of it came, of open steps
  UsualLongest usually_out_;
  bool watched_ = false;
  std::set<MicrobatchId> backed_up_;  // of open steps
};

}  // namespace swarmline
