// How fast a link is, beside a plain socket between the same two ends, in the same rounds.
//   Ownership: borrows all it is given. Thread: one; it waits for both.
//   Errors:    those of the link; kPeerGone: the plain socket's other end is gone.
//   Bounds:    a round is at most kRoundBytes and, between machines, about kFarRoundSeconds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/measure/bench_codec.h"
#include "tools/measure/link_rates.h"
#include "tools/measure/link_yardstick.h"
#include "tools/measure/measured_link.h"

namespace swarmline {

inline constexpr std::uint64_t kRoundBytes = 64 * kMiB;  // and one payload, where that is more
inline constexpr double kFarRoundSeconds = 1;

class LinkMeter {
 public:
  // Two ends, and what they are called. No plain socket: nothing stands beside the link.
  struct Ends {
    std::string way, far;  // LinkRate
    MeasuredLink& link;
    RawLink* raw;
  };

  LinkMeter(int rounds, const SecondsClock& clock, const LinkBenchNews& news,
            LinkBenchResult& result)
      : rounds_(rounds), clock_(clock), news_(news), result_(result) {}

  Result<void> measure_rate(const Ends& ends, std::uint64_t bytes, bool outward);
  Result<void> measure_trip(const Ends& ends);

 private:
  Result<double> seconds_of(const std::function<Result<void>()>& work) const;
  Result<std::uint64_t> payloads_of(const Ends& ends, std::uint64_t bytes, bool outward) const;

  const int rounds_;
  const SecondsClock& clock_;
  const LinkBenchNews& news_;
  LinkBenchResult& result_;
};

}  // namespace swarmline
