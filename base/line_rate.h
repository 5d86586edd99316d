// How often one cause is told to the log, where somebody else decides how often it happens.
//   Thread: one at a time. Bounds: a line each kPeriod.
#pragma once

#include <cstdint>
#include <utility>

#include "base/units.h"

namespace swarmline {

class LineRate {
 public:
  static constexpr Duration kPeriod = std::chrono::seconds(1);

  // It happened again. How often since the last line, this time included, if a line is due; 0: say
  // nothing.
  std::uint64_t happened(Instant now) {
    ++unsaid_;
    if (said_ && now - last_ < kPeriod) return 0;
    said_ = true;
    last_ = now;
    return std::exchange(unsaid_, 0);
  }

 private:
  std::uint64_t unsaid_ = 0;
  Instant last_{};
  bool said_ = false;
};

}  // namespace swarmline
