// How much slower than usual this peer computes now, and how many microbatches it may then have. A
// step ends when its last microbatch does: whoever has as many as ever of them when it becomes slow
// holds all others up.
//   What:    each kind of job has a usual time, which follows slowly what comes; the newest jobs
//            are held against it. Who stays slow is soon one that is usually so: the wiring knows
//            it by then.
//   Thread:  plain value. Bounds: one number a kind of job.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/units.h"
#include "engine/device/device.h"

namespace swarmline {

class Slowdown {
 public:
  static constexpr std::uint32_t kSamplesMin = 16;  // of a kind, before anything is known
  static constexpr double kSlow = 2;                // times the usual: it may have fewer
  // Shorter jobs are not slow: with many processes on few cores such wait as long now and then.
  static constexpr Duration kLong = std::chrono::milliseconds(50);
  static constexpr std::uint64_t kFewest = 2;  // one computed, one on its way

  // Jobs that are no part of a microbatch are not counted.
  void on_job(JobKind kind, Duration service);
  // The newest jobs' time over the usual one, of two the smaller: one that waited for a core says
  // nothing. 1 where that is not known.
  double factor() const { return std::min(newest_[0], newest_[1]); }
  bool is_slow() const { return factor() >= kSlow; }
  // What it usually has, as long as it is not slow: then as many as it is done with in the same
  // time, but not fewer than kFewest.
  std::uint64_t may_have(double usually) const;

 private:
  struct Usual {
    double seconds = 0;
    std::uint32_t samples = 0;
  };
  std::array<Usual, 4> usual_;
  std::array<double, 2> newest_{1, 1};
};

}  // namespace swarmline
