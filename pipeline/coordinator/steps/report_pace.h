// How long no report of a step may come before its end is taken to be held up by somebody slow.
//
// While anybody works at his usual speed, reports come; so a step's longest pause between two of
// them says how long a swarm as a whole falls silent (devices, links and the commits in between
// included). Steps may be computed side by side: each has its own pauses.
//   Thread: control thread; pure: the time is passed in.
//   Bounds: two times a step that has begun and is not complete; UsualLongest's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/units.h"
#include "pipeline/coordinator/steps/usual_longest.h"

namespace swarmline {

class ReportPace {
 public:
  void on_report(std::uint64_t step, Instant now);
  // The step has all reports, and counts.
  void on_complete(std::uint64_t step);
  // The step is given up, and does not count.
  void forget(std::uint64_t step) { running_.erase(step); }
  void forget_all() { running_.clear(); }
  // Since a step's last report. Empty: too little is known.
  std::optional<Duration> patience() const { return pauses_.patience(); }
  // Empty: it has had none, or is complete.
  std::optional<Instant> last_report(std::uint64_t step) const;

 private:
  struct Running {
    Instant last{};
    Duration longest{};
  };
  std::map<std::uint64_t, Running> running_;  // by step
  UsualLongest pauses_;
};

}  // namespace swarmline
