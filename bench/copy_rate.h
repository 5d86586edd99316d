// The yardstick of every benchmark of memory-bound work: memcpy in the same process, on the same
// core.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <ctime>

#include "base/bytes.h"

namespace swarmline::bench {

// CPU seconds of this thread: what Google Benchmark divides by, and blind to other load.
inline double thread_seconds() {
  std::timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// CPU seconds to copy `bytes` once, the best of a few: memory written before, so that no page is
// new.
inline double copy_seconds(std::size_t bytes) {
  constexpr int kTries = 7;
  Buffer from = Buffer::zeroed(bytes), to = Buffer::zeroed(bytes);
  double best = 1e30;
  for (int i = 0; i < kTries; ++i) {
    const double start = thread_seconds();
    std::memcpy(to.data(), from.data(), bytes);
    asm volatile("" : : "r"(to.data()) : "memory");
    best = std::min(best, thread_seconds() - start);
  }
  return best;
}

}  // namespace swarmline::bench
