// What a simulated disk does to those who write to it: how long it takes, and when it fails.
//   What:   one queue; each operation takes its time after the one before. For a while it may be
//           full, fail now and then, be slow, or not come back from an fsync at all.
//   Thread: that of the SimRuntime. Same calls at the same virtual instants, same answers.
//   Errors: kIo, as of a real disk.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/rng.h"
#include "base/units.h"

namespace swarmline {

enum class DiskUse : std::uint8_t { kRead, kWrite, kSync };

class SimDisk {
 public:
  explicit SimDisk(Rng rng) : rng_(rng) {}

  // ---- Faults, each until then ----
  void fill(Instant until) { full_until_ = until; }
  void fail_often(Instant until, double one_in) {
    failing_until_ = until;
    one_in_ = one_in;
  }
  void slow_down(Instant until, double factor) {
    slow_until_ = until;
    factor_ = factor;
  }
  void get_stuck(Instant until) { stuck_until_ = until; }

  // When an operation that is asked for now is done.
  Instant done_at(DiskUse use, std::uint64_t bytes, Instant now);
  // How it went, then.
  Result<void> outcome(DiskUse use, Instant now);

 private:
  Rng rng_;
  Instant busy_until_;
  Instant full_until_, failing_until_, slow_until_, stuck_until_;
  double one_in_ = 1;
  double factor_ = 1;
};

}  // namespace swarmline
