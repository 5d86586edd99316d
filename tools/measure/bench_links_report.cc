#include "tools/measure/bench_links_report.h"

#include <fmt/format.h>

#include "base/units.h"
#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

constexpr double kGiga = 1e9, kMega = 1e6, kMicro = 1e-6;

std::string size_text(std::uint64_t bytes) {
  return bytes % kMiB == 0 ? fmt::format("{} MiB", bytes / kMiB)
                           : fmt::format("{} KiB", bytes / kKiB);
}

}  // namespace

std::string link_bench_head() {
  return fmt::format(
      "{:<8} {:>10} {:>10} {:>10} {:>10} {:>8}\n{:<8} {:>10} {:>10} {:>10} {:>10} {:>8}", "", "",
      "link", "socket", "memcpy", "link of", "way", "payload", "GB/s", "GB/s", "GB/s", "socket");
}

std::string far_link_bench_head() {
  return fmt::format(
      "{:<8} {:>10} {:>5} {:>10} {:>10} {:>8}\n{:<8} {:>10} {:>5} {:>10} {:>10} {:>8}", "", "", "",
      "link", "socket", "link of", "way", "payload", "", "MB/s", "MB/s", "socket");
}

std::string rate_line(const LinkRate& rate) {
  if (!rate.far.empty())
    return fmt::format("{:<8} {:>10} {:>5} {:>10.1f} {}", rate.way, size_text(rate.bytes),
                       rate.outward ? "to" : "from", rate.bytes_per_second / kMega,
                       rate.of_raw > 0 ? fmt::format("{:>10.1f} {:>7.2f}x",
                                                     rate.raw_bytes_per_second / kMega, rate.of_raw)
                                       : fmt::format("{:>10} {:>8}", "-", "-"));
  return fmt::format("{:<8} {:>10} {:>10.2f} {:>10.2f} {:>10.2f} {:>7.2f}x", rate.way,
                     size_text(rate.bytes), rate.bytes_per_second / kGiga,
                     rate.raw_bytes_per_second / kGiga, rate.copy_bytes_per_second / kGiga,
                     rate.of_raw);
}

std::string trip_line(const LinkTrip& trip) {
  if (!trip.far.empty())
    return fmt::format(
        "{:<8} {:>10} {:>5} {:>7.1f} us {}", trip.way, "round trip", "", trip.seconds / kMicro,
        trip.of_raw > 0
            ? fmt::format("{:>7.1f} us {:>7.2f}x", trip.raw_seconds / kMicro, trip.of_raw)
            : fmt::format("{:>10} {:>8}", "-", "-"));
  return fmt::format("{:<8} {:>10} {:>7.1f} us {:>7.1f} us {:>10} {:>7.2f}x", trip.way,
                     "round trip", trip.seconds / kMicro, trip.raw_seconds / kMicro, "",
                     trip.of_raw);
}

std::string to_json(const LinkBenchReport& report) {
  JsonWriter json(1);
  json.begin_object().member("format", kLinkBenchFormat).member("kind", "links");
  json.member("wall_seconds", report.wall_seconds).member("machine", report.machine);
  json.member("cores", report.cores).member("rounds", report.rounds);
  json.key("rates").begin_array();
  for (const LinkRate& rate : report.result.rates) {
    json.begin_object().member("way", rate.way).member("payload_bytes", rate.bytes);
    if (!rate.far.empty())
      json.member("host", rate.far).member("direction", rate.outward ? "to" : "from");
    json.member("bytes_per_second", rate.bytes_per_second);
    if (rate.raw_bytes_per_second > 0)
      json.member("socket_bytes_per_second", rate.raw_bytes_per_second);
    if (rate.copy_bytes_per_second > 0)
      json.member("memcpy_bytes_per_second", rate.copy_bytes_per_second);
    if (rate.of_raw > 0) json.member("of_socket", rate.of_raw);
    json.end_object();
  }
  json.end_array().key("round_trips").begin_array();
  for (const LinkTrip& trip : report.result.trips) {
    json.begin_object().member("way", trip.way);
    if (!trip.far.empty()) json.member("host", trip.far);
    json.member("seconds", trip.seconds);
    if (trip.of_raw > 0)
      json.member("socket_seconds", trip.raw_seconds).member("of_socket", trip.of_raw);
    json.end_object();
  }
  json.end_array().key("left_out").begin_array();
  for (const auto& [way, why] : report.result.left_out)
    json.begin_object().member("way", way).member("why", why).end_object();
  json.end_array().end_object();
  return json.take() + "\n";
}

}  // namespace swarmline
