#include "pipeline/coordinator/states/checkpoint_schedule.h"

#include <algorithm>

#include "base/marks.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

bool CheckpointSchedule::is_due(std::uint64_t version, Instant now) const {
  if (now < may_begin_) return false;
  if (again_ || asked_) return true;
  if (config_.every_steps > 0 && version % config_.every_steps == 0) return true;
  if (config_.every_minutes <= 0 || now - begun_ < from_seconds(60 * config_.every_minutes))
    return false;
  SWARMLINE_MARK("checkpoint_schedule.by_time");
  return true;
}

void CheckpointSchedule::on_done() {
  failures_ = 0;
  again_ = false;
  may_begin_ = {};
}

void CheckpointSchedule::on_failed(Instant now) {
  const std::uint32_t doublings = std::min(failures_++, 20U);
  may_begin_ = now + std::min<Duration>(knobs().checkpoint_pause_min * (1 << doublings),
                                        knobs().checkpoint_pause_max);
  again_ = true;
}

void CheckpointSchedule::on_interrupted() {
  again_ = true;
}

}  // namespace swarmline
