// What the links between two peers of this machine give, by the way that payloads go, beside a
// plain socket in the same rounds. Both ends are threads of this process with loops of their own.
//   Check:  each payload's length, and of each size one payload's every byte, before it is timed.
//   Ratios: of each round, ours over the plain socket's; their median counts.
//   Errors: kUserMistake: no way of that name. A way that can't be had is left out, with a
//           sentence. kPeerGone: a link has ended.
//   Bounds: kLinkBenchBytesMax a payload (measured_link.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/measure/bench_codec.h"
#include "tools/measure/link_rates.h"

namespace swarmline {

// The ways that are measured: plain TCP, TCP between keys, and payloads over a bulk link.
const std::vector<std::string>& link_bench_ways();
Result<void> check_link_ways(const std::vector<std::string>& ways);

struct LinkBenchOptions {
  std::vector<std::string> ways;
  std::vector<std::uint64_t> bytes;  // payloads' sizes
  int rounds = 5;
};
Result<LinkBenchResult> bench_links(const LinkBenchOptions& options, const SecondsClock& clock,
                                    const LinkBenchNews& news);

}  // namespace swarmline
