// Sizes and durations with their units in the name. Time is a strong type without now(): an Instant
// can only come from a Runtime, so that the simulator owns every clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace swarmline {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

struct EngineClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<EngineClock, duration>;
  static constexpr bool is_steady = true;
};

using Duration = EngineClock::duration;
using Instant = EngineClock::time_point;

constexpr double to_seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}
constexpr Duration from_seconds(double s) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s));
}

}  // namespace swarmline
