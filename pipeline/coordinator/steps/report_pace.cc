#include "pipeline/coordinator/steps/report_pace.h"

#include <algorithm>

namespace swarmline {

void ReportPace::on_report(std::uint64_t step, Instant now) {
  if (step != step_ || !last_) {
    step_ = step;
    longest_ = {};
  } else {
    longest_ = std::max(longest_, now - *last_);
  }
  last_ = now;
}

void ReportPace::on_complete(std::uint64_t step) {
  if (step != step_ || !last_) return;
  last_.reset();
  pauses_.add(longest_);
}

}  // namespace swarmline
