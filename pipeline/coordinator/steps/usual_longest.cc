#include "pipeline/coordinator/steps/usual_longest.h"

#include <algorithm>
#include <vector>

#include "base/order_statistics.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

void UsualLongest::add(Duration longest_of_a_step) {
  steps_.push_back(longest_of_a_step);
  if (steps_.size() > kStepsKept) steps_.pop_front();
  if (steps_.size() < kStepsMin) return;
  const Duration quartile =
      nth_smallest(std::vector(steps_.begin(), steps_.end()), (steps_.size() * 3 + 3) / 4 - 1);
  patience_ =
      std::max<Duration>(knobs().tail_patience_min, from_seconds(kMargin * to_seconds(quartile)));
}

}  // namespace swarmline
