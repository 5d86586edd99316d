// How long no report of a step may come before its end is taken to be held up by somebody slow.
//
// While anybody works at his usual speed, reports come; so a step's longest pause between two of
// them says how long a swarm as a whole falls silent (devices, links and the commits in between
// included). The upper quartile of the last steps leaves out the few that were held up, and yet
// does not take the usual differences between steps for a fault.
//   Thread: control thread; pure: the time is passed in. Bounds: kStepsKept numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "base/units.h"

namespace swarmline {

class ReportPace {
 public:
  static constexpr std::size_t kStepsKept = 15;
  static constexpr std::size_t kStepsMin = 3;  // before anything is held up
  static constexpr double kMargin = 1.5;       // times that quartile

  // A report of that step; one of another step than the last begins a new count.
  void on_report(std::uint64_t step, Instant now);
  // The step has all reports, and counts.
  void on_complete(std::uint64_t step);
  // Since the last report. Empty: too little is known.
  std::optional<Duration> patience() const { return patience_; }
  // Of the step that is not complete; empty: it has had none.
  std::optional<Instant> last_report() const { return last_; }

 private:
  std::uint64_t step_ = 0;
  std::optional<Instant> last_;  // report of step_
  Duration longest_{};
  std::deque<Duration> pauses_;  // the longest of each of the last steps
  std::optional<Duration> patience_;
};

}  // namespace swarmline
