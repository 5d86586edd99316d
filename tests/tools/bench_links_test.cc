#include "tools/measure/bench_links.h"

#include <gtest/gtest.h>

#include "engine/net/ucx/ucx_backend.h"
#include "engine/runtime/asio_runtime.h"
#include "tests/golden/golden.h"
#include "tools/measure/bench_links_report.h"
#include "tools/measure/bench_machine.h"

namespace swarmline {
namespace {

LinkBenchNews no_news() {
  return {.on_begin = [](const std::string&) {},
          .on_rate = [](const LinkRate&) {},
          .on_trip = [](const LinkTrip&) {}};
}

TEST(BenchLinks, EachWayIsMeasuredOrLeftOutWithItsReason) {
  set_ucx_environment();
  const AsioRuntime runtime;
  const LinkBenchOptions options{
      .ways = link_bench_ways(), .bytes = {100 * kKiB, 2 * kMiB}, .rounds = 1};
  const auto result = bench_links(options, seconds_clock(runtime), no_news());
  ASSERT_TRUE(result.has_value()) << result.error().what;
  EXPECT_EQ(result->trips.size() + result->left_out.size(), options.ways.size());
  EXPECT_EQ(result->rates.size(), 2 * result->trips.size());
  for (const LinkRate& rate : result->rates) {
    EXPECT_GT(rate.bytes_per_second, 0) << rate.way;
    EXPECT_GT(rate.raw_bytes_per_second, 0);
    EXPECT_GT(rate.copy_bytes_per_second, 0);
    EXPECT_GT(rate.of_raw, 0);
  }
  for (const auto& [way, why] : result->left_out) {
    EXPECT_TRUE(way == "ucx" || way == "rdma") << way << ": " << why;
    EXPECT_FALSE(why.empty());
  }
}

TEST(BenchLinks, AnUnknownWayIsAMistake) {
  const AsioRuntime runtime;
  const LinkBenchOptions options{.ways = {"pigeon"}, .bytes = {64 * kKiB}, .rounds = 1};
  const auto result = bench_links(options, seconds_clock(runtime), no_news());
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kUserMistake);
  EXPECT_EQ(result.error().what, "--ways pigeon: expected tcp, tls, shm, ucx, rdma, streams");
}

// The format is a promise: docs/formats/bench.md.
TEST(BenchLinks, TheReportIsWrittenAsItsFormatSays) {
  LinkBenchReport report{.machine = "A processor",
                         .cores = 2,
                         .wall_seconds = 1795640000.5,
                         .rounds = 5,
                         .result = {}};
  report.result.rates.push_back({.way = "shm",
                                 .bytes = 16 * kMiB,
                                 .bytes_per_second = 4.5e9,
                                 .raw_bytes_per_second = 1.5e9,
                                 .copy_bytes_per_second = 9e9,
                                 .of_raw = 3});
  report.result.trips.push_back(
      {.way = "shm", .seconds = 3e-5, .raw_seconds = 2e-5, .of_raw = 1.5});
  report.result.left_out.emplace_back("ucx", "this machine lacks UCX");
  expect_golden("bench/links.json", to_json(report));
}

TEST(BenchLinks, LinesSayWhatIsCompared) {
  EXPECT_EQ(rate_line({.way = "shm",
                       .bytes = 16 * kMiB,
                       .bytes_per_second = 4.5e9,
                       .raw_bytes_per_second = 1.5e9,
                       .copy_bytes_per_second = 9e9,
                       .of_raw = 3}),
            "shm          16 MiB       4.50       1.50       9.00    3.00x");
  EXPECT_EQ(trip_line({.way = "tcp", .seconds = 3e-5, .raw_seconds = 2e-5, .of_raw = 1.5}),
            "tcp      round trip    30.0 us    20.0 us               1.50x");
}

}  // namespace
}  // namespace swarmline
