#include "pipeline/coordinator/run/deadline.h"

#include "base/marks.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

void Deadline::begin() {
  alarms_.cancel(timer_);
  began_ = alarms_.now();
  due_ = began_ + wait_;
  timer_ = alarms_.at(due_, [this] { fire(); });
}

void Deadline::fire() {
  const bool late = alarms_.now() - due_ > knobs().overslept_min && !std::exchange(put_off_, true);
  if (late || alarms_.awake_since() > began_) {
    SWARMLINE_MARK("deadline.begins_anew");
    return begin();
  }
  const Alarms::Callback passed = passed_;  // it may arm this again
  passed();
}

}  // namespace swarmline
