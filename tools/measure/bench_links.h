// What the links between two peers of this machine give, by the way that payloads go, beside a
// plain socket in the same rounds. Both ends are threads of this process with loops of their own.
//   Check:  each payload's length, and of each size one payload's every byte, before it is timed.
//   Ratios: of each round, ours over the plain socket's; their median counts.
//   Errors: kUserMistake: no way of that name. A way that can't be had is left out, with a
//           sentence.
//   Bounds: kLinkBenchBytesMax a payload.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "tools/measure/bench_codec.h"

namespace swarmline {

inline constexpr std::uint64_t kLinkBenchBytesMax = 1 * kGiB;
inline constexpr std::uint64_t kLinkBenchMessageBytes = 64;  // of a round trip

// The ways that are measured: plain TCP, TCP between keys, and payloads over a bulk link.
const std::vector<std::string>& link_bench_ways();

struct LinkBenchOptions {
  std::vector<std::string> ways;
  std::vector<std::uint64_t> bytes;  // payloads' sizes
  int rounds = 5;
};
struct LinkRate {
  std::string way;
  std::uint64_t bytes = 0;
  double bytes_per_second = 0, raw_bytes_per_second = 0, copy_bytes_per_second = 0;  // medians
  double of_raw = 0;
};
struct LinkTrip {
  std::string way;
  double seconds = 0, raw_seconds = 0;  // medians
  double of_raw = 0;                    // 2: takes twice as long
};
struct LinkBenchResult {
  std::vector<LinkRate> rates;
  std::vector<LinkTrip> trips;
  std::vector<std::pair<std::string, std::string>> left_out;  // a way, and why
};

struct LinkBenchNews {
  std::function<void(const std::string&)> on_begin;  // what is being measured
  std::function<void(const LinkRate&)> on_rate;
  std::function<void(const LinkTrip&)> on_trip;
};

Result<LinkBenchResult> bench_links(const LinkBenchOptions& options, const SecondsClock& clock,
                                    const LinkBenchNews& news);

}  // namespace swarmline
