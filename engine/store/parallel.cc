#include "engine/store/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace swarmline {

std::uint32_t cores_at_hand() {
  return std::max(1U, std::thread::hardware_concurrency());
}

Result<void> for_each_at_once(std::size_t count, std::uint32_t threads_max,
                              const std::function<Result<void>(std::size_t)>& body) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::size_t failed_at = count;
  Result<void> failure;
  const auto guarded = [&](std::size_t i) -> Result<void> {
    try {
      return body(i);
    } catch (const std::exception& error) {
      return fail(ErrorCode::kIo, error.what());
    }
  };
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      Result<void> done = guarded(i);
      if (done) continue;
      next = count;
      const std::lock_guard lock(mutex);
      if (i >= failed_at) continue;
      failed_at = i;
      failure = std::move(done);
    }
  };
  const std::size_t threads =
      std::min({count, std::size_t{threads_max}, std::size_t{cores_at_hand()}});
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < threads; ++i) others.emplace_back(work);
    work();
  }
  return failure;
}

}  // namespace swarmline
