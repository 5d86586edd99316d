// What a step's longest time of some kind usually is, and how long may be waited for one: kMargin
// times the upper quartile of the last steps. It leaves out the few that were held up, and yet does
// not take the usual differences between steps for a fault.
//   Thread: plain value. Bounds: kStepsKept numbers.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include "base/units.h"

namespace swarmline {

class UsualLongest {
 public:
  static constexpr std::size_t kStepsKept = 15;
  static constexpr std::size_t kStepsMin = 3;  // before anything is late
  static constexpr double kMargin = 1.5;

  void add(Duration longest_of_a_step);
  // Empty: too little is known. At least knobs().tail_patience_min.
  std::optional<Duration> patience() const { return patience_; }

 private:
  std::deque<Duration> steps_;
  std::optional<Duration> patience_;
};

}  // namespace swarmline
