// How often one cause is told to the log, where somebody else decides how often it happens.
//   Thread: one at a time. Bounds: so many lines each kPeriod.
#pragma once

#include <cstdint>
#include <utility>

#include "base/units.h"

namespace swarmline {

class LineRate {
 public:
  static constexpr Duration kPeriod = std::chrono::seconds(1);

  LineRate() = default;
  explicit LineRate(std::uint32_t lines_max) : lines_max_(lines_max) {}

  // It happened again. How often since the last line, this time included, if a line is due; 0: say
  // nothing.
  std::uint64_t happened(Instant now) {
    ++unsaid_;
    if (lines_ == 0 || now - began_ >= kPeriod) {
      began_ = now;
      lines_ = 0;
    }
    if (lines_ >= lines_max_) return 0;
    ++lines_;
    return std::exchange(unsaid_, 0);
  }

 private:
  std::uint32_t lines_max_ = 1;
  std::uint32_t lines_ = 0;  // since then
  Instant began_{};
  std::uint64_t unsaid_ = 0;
};

}  // namespace swarmline
