// What prices, budgets and rates of failure are told in.
#pragma once

namespace swarmline {

inline constexpr double kSecondsPerHour = 3600;
inline constexpr double kBytesPerGb = 1e9;  // as clouds charge traffic

}  // namespace swarmline
