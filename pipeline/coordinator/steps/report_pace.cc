#include "pipeline/coordinator/steps/report_pace.h"

#include <algorithm>
#include <vector>

#include "base/order_statistics.h"
#include "pipeline/protocol/knobs.h"

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
  pauses_.push_back(longest_);
  if (pauses_.size() > kStepsKept) pauses_.pop_front();
  if (pauses_.size() < kStepsMin) return;
  const Duration quartile =
      nth_smallest(std::vector(pauses_.begin(), pauses_.end()), (pauses_.size() * 3 + 3) / 4 - 1);
  patience_ =
      std::max<Duration>(knobs().tail_patience_min, from_seconds(kMargin * to_seconds(quartile)));
}

}  // namespace swarmline
