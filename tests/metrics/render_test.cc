#include "engine/metrics/render.h"

#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace swarmline {
namespace {

Snapshot example() {
  Registry registry;
  registry.counter("sent_bytes", {{"stage", "0"}, {"peer", "a\"b\\c\nd"}}).add(3);
  registry.counter("sent_bytes", {{"stage", "1"}}).add(std::numeric_limits<std::uint64_t>::max());
  registry.gauge("loss").set(0.1);
  registry.gauge("worst").set(std::numeric_limits<double>::infinity());
  Histogram& histogram = registry.histogram("wait_seconds", {{"stage", "0"}});
  histogram.observe(0.75);
  histogram.observe(3);
  histogram.observe(3.5);
  registry.histogram("empty");
  return registry.snapshot();
}

TEST(ToPrometheus, WritesTheExpositionFormat) {
  EXPECT_EQ(to_prometheus(example()), R"(# TYPE empty histogram
empty_bucket{le="+Inf"} 0
empty_sum 0
empty_count 0
# TYPE loss gauge
loss 0.1
# TYPE sent_bytes_total counter
sent_bytes_total{peer="a\"b\\c\nd",stage="0"} 3
sent_bytes_total{stage="1"} 18446744073709551615
# TYPE wait_seconds histogram
wait_seconds_bucket{stage="0",le="1"} 1
wait_seconds_bucket{stage="0",le="2"} 1
wait_seconds_bucket{stage="0",le="4"} 3
wait_seconds_bucket{stage="0",le="+Inf"} 3
wait_seconds_sum{stage="0"} 7.25
wait_seconds_count{stage="0"} 3
# TYPE worst gauge
worst +Inf
)");
}

TEST(ToJsonLine, WritesOneLine) {
  EXPECT_EQ(
      to_json_line(example()),
      R"({"format":1,"metrics":[)"
      R"({"name":"empty","labels":{},"kind":"histogram","count":0,"sum":0,"buckets":[]},)"
      R"({"name":"loss","labels":{},"kind":"gauge","value":0.1},)"
      R"({"name":"sent_bytes","labels":{"peer":"a\"b\\c\u000ad","stage":"0"},)"
      R"("kind":"counter","value":3},)"
      R"({"name":"sent_bytes","labels":{"stage":"1"},"kind":"counter",)"
      R"("value":18446744073709551615},)"
      R"({"name":"wait_seconds","labels":{"stage":"0"},"kind":"histogram","count":3,"sum":7.25,)"
      R"("buckets":[[1,1],[4,2]]},)"
      R"({"name":"worst","labels":{},"kind":"gauge","value":null}]})");
}

TEST(Render, WhatIsAboveTheLastBoundIsOnlyInInf) {
  Registry registry;
  registry.histogram("x").observe(1e300);
  EXPECT_EQ(to_prometheus(registry.snapshot()),
            "# TYPE x histogram\nx_bucket{le=\"+Inf\"} 1\nx_sum 1e+300\nx_count 1\n");
  EXPECT_NE(to_json_line(registry.snapshot()).find(R"("buckets":[[null,1]])"), std::string::npos);
}

TEST(Render, AnEmptySnapshotIsText) {
  EXPECT_EQ(to_prometheus({}), "");
  EXPECT_EQ(to_json_line({}), R"({"format":1,"metrics":[]})");
}

}  // namespace
}  // namespace swarmline
