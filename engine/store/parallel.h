// Work on many files at once, of who waits for all of it.
//   What:    calls body(0) ... body(count - 1) on at most `threads_max` threads, the caller's among
//            them, and waits for all.
//   Thread:  any. Bodies run side by side: each touches its own.
//   Errors:  that of the lowest number that failed; what has not begun by then is left out.
//   Bounds:  threads_max.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/result.h"

namespace swarmline {

Result<void> for_each_at_once(std::size_t count, std::uint32_t threads_max,
                              const std::function<Result<void>(std::size_t)>& body);

std::uint32_t cores_at_hand();  // at least 1

}  // namespace swarmline
