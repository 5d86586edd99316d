#include "sim/doors/sim_disk.h"

#include <algorithm>

#include "base/marks.h"

namespace swarmline {

namespace {
constexpr Duration kSyncTime = std::chrono::milliseconds(2);
constexpr double kBytesPerSecond = 500e6;
}  // namespace

Instant SimDisk::done_at(DiskUse use, std::uint64_t bytes, Instant now) {
  double seconds = static_cast<double>(bytes) / kBytesPerSecond;
  if (use == DiskUse::kSync) seconds += to_seconds(kSyncTime);
  if (now < slow_until_) {
    SWARMLINE_MARK("sim_disk.slow");
    // A small model's bytes would be there at once even so.
    seconds = factor_ * (seconds + to_seconds(kSyncTime));
  }
  Instant begins = std::max(now, busy_until_);
  if (use == DiskUse::kSync && begins < stuck_until_) {
    SWARMLINE_MARK("sim_disk.stuck");
    begins = stuck_until_;
  }
  return busy_until_ = begins + from_seconds(seconds);
}

Result<void> SimDisk::outcome(DiskUse use, Instant now) {
  if (use != DiskUse::kRead && now < full_until_) {
    SWARMLINE_MARK("sim_disk.full");
    return fail(ErrorCode::kIo, "no space left on device");
  }
  if (now < failing_until_ && rng_.uniform() * one_in_ < 1) {
    SWARMLINE_MARK("sim_disk.error");
    return fail(ErrorCode::kIo, "input/output error");
  }
  return {};
}

}  // namespace swarmline
