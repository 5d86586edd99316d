// Whether a run waits for peers that are silent and alone hold their stage's state, or goes back to
// its newest checkpoint without them.
//   What:      going back costs every step since that checkpoint once more, the open one included,
//              and the time to load it; waiting costs the time waited, and nobody knows how long
//              that will be. Who waits for as long as going back would take, and then goes back,
//              loses at most twice what who knew it would.
//   Units:     durations; steps are commits of the run.
//   Thread:    plain values. Pure.
//   Bounds:    [run] wait_seconds, whatever going back costs.
//   Source:    the ski rental problem (Karlin, Manasse, Rudolph, Sleator, 1988).
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/units.h"

namespace swarmline {

struct GoingBack {
  std::uint64_t steps = 0;  // committed since the newest checkpoint
  double step_seconds = 0;  // of one, as measured; 0: not yet
  Duration loading{};       // as measured, or what it takes at least
  Duration unmeasured{};    // what all of it is taken to cost until a step was measured
};

inline Duration cost_of(const GoingBack& back) {
  if (back.step_seconds <= 0) return std::max(back.loading, back.unmeasured);
  const double steps = static_cast<double>(back.steps) + 1;
  return back.loading + from_seconds(std::min(steps * back.step_seconds, 1e9));
}

inline Duration worth_waiting(const GoingBack& back, Duration bound) {
  return std::min(cost_of(back), bound);
}

}  // namespace swarmline
