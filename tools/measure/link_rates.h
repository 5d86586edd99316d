// What is measured of links, and who hears of it. Values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace swarmline {

struct LinkRate {
  std::string way;
  std::uint64_t bytes = 0;
  double bytes_per_second = 0, raw_bytes_per_second = 0, copy_bytes_per_second = 0;  // medians
  double of_raw = 0;
  // Between machines: the other one, and whether payloads went there. A rate of 0 beside the link's
  // was not measured.
  std::string far = {};
  bool outward = false;
};
struct LinkTrip {
  std::string way;
  double seconds = 0, raw_seconds = 0;  // medians
  double of_raw = 0;                    // 2: takes twice as long
  std::string far = {};
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
  std::function<void(const std::string&)> on_far = {};  // between machines: the next one
};

}  // namespace swarmline
