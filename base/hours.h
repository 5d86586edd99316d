// What prices, budgets and rates of failure are told in.
#pragma once

namespace swarmline {

inline constexpr double kSecondsPerHour = 3600;

}  // namespace swarmline
