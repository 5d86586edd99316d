// How long no report of a step may come before its end is taken to be held up by somebody slow.
//
// While anybody works at his usual speed, reports come; so a step's longest pause between two of
// them says how long a swarm as a whole falls silent (devices, links and the commits in between
// included).
//   Thread: control thread; pure: the time is passed in. Bounds: UsualLongest's.
#pragma once

#include <cstdint>
#include <optional>

#include "base/units.h"
#include "pipeline/coordinator/steps/usual_longest.h"

namespace swarmline {

class ReportPace {
 public:
  // A report of that step; one of another step than the last begins a new count.
  void on_report(std::uint64_t step, Instant now);
  // The step has all reports, and counts.
  void on_complete(std::uint64_t step);
  // Since the last report. Empty: too little is known.
  std::optional<Duration> patience() const { return pauses_.patience(); }
  // Of the step that is not complete; empty: it has had none.
  std::optional<Instant> last_report() const { return last_; }

 private:
  std::uint64_t step_ = 0;
  std::optional<Instant> last_;  // report of step_
  Duration longest_{};
  UsualLongest pauses_;
};

}  // namespace swarmline
