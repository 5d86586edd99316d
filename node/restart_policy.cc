#include "node/restart_policy.h"

#include <algorithm>

namespace swarmline {

std::optional<Duration> RestartPolicy::died(Duration lived) {
  if (limits_.attempts_max == 0) return std::nullopt;
  short_lives_ = lived >= limits_.soon ? 0 : short_lives_ + 1;
  if (short_lives_ > limits_.attempts_max) return std::nullopt;
  if (short_lives_ <= 1) return Duration::zero();
  Duration pause = limits_.pause_first;
  for (int life = 2; life < short_lives_ && pause < limits_.pause_max; ++life) pause *= 2;
  return std::min(pause, limits_.pause_max);
}

}  // namespace swarmline
