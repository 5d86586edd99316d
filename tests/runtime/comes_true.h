// Waiting for what other processes do. Header-only.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace swarmline {

// Long enough for a loaded machine; nothing is expected to take as long.
inline constexpr double kPatienceSeconds = 60;

// True once `holds` does, false after the time is up.
inline bool comes_true(const std::function<bool()>& holds, double seconds_max = kPatienceSeconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds_max);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace swarmline
