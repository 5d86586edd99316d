// What `swarmline bench links` prints and writes. Pure.
//   Formats: docs/formats/bench.md, kind "links".
#pragma once

#include <string>

#include "tools/measure/bench_links.h"

namespace swarmline {

struct LinkBenchReport {
  std::string machine;  // the processor
  int cores = 0;
  double wall_seconds = 0;  // since 1970, when it began
  int rounds = 0;
  LinkBenchResult result;
};

inline constexpr std::uint64_t kLinkBenchFormat = 1;

std::string link_bench_head();
std::string far_link_bench_head();  // of links between machines
// A line each, to be printed as results come.
std::string rate_line(const LinkRate& rate);
std::string trip_line(const LinkTrip& trip);
std::string to_json(const LinkBenchReport& report);

}  // namespace swarmline
