#include "engine/metrics/metrics.h"

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace swarmline {
namespace {

TEST(HistogramBuckets, BoundsBelongToTheBucketBelow) {
  const int one = HistogramBuckets::index_of(1.0);
  EXPECT_EQ(HistogramBuckets::upper_bound(one), 1.0);
  EXPECT_EQ(HistogramBuckets::index_of(std::nextafter(1.0, 2.0)), one + 1);
  EXPECT_EQ(HistogramBuckets::index_of(2.0), one + 1);
  for (int i = 0; i + 1 < HistogramBuckets::kCount; ++i) {
    const double bound = HistogramBuckets::upper_bound(i);
    EXPECT_EQ(HistogramBuckets::index_of(bound), i);
    EXPECT_EQ(HistogramBuckets::index_of(std::nextafter(bound, 1e300)), i + 1);
  }
}

TEST(HistogramBuckets, TakesAnyNumber) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(HistogramBuckets::index_of(0), 0);
  EXPECT_EQ(HistogramBuckets::index_of(-5), 0);
  EXPECT_EQ(HistogramBuckets::index_of(-kInfinity), 0);
  EXPECT_EQ(HistogramBuckets::index_of(1e-300), 0);
  EXPECT_EQ(HistogramBuckets::index_of(1e300), HistogramBuckets::kCount - 1);
  EXPECT_EQ(HistogramBuckets::index_of(kInfinity), HistogramBuckets::kCount - 1);
  EXPECT_TRUE(std::isinf(HistogramBuckets::upper_bound(HistogramBuckets::kCount - 1)));
}

TEST(Registry, GivesTheSameInstrumentForTheSameLabelsInAnyOrder) {
  Registry registry;
  Counter& counter = registry.counter("sent_bytes", {{"stage", "1"}, {"peer", "2"}});
  EXPECT_EQ(&counter, &registry.counter("sent_bytes", {{"peer", "2"}, {"stage", "1"}}));
  EXPECT_NE(&counter, &registry.counter("sent_bytes", {{"peer", "3"}, {"stage", "1"}}));
  EXPECT_NE(&counter, &registry.counter("sent_bytes"));
}

TEST(Registry, SnapshotHoldsEverythingInOrder) {
  Registry registry;
  registry.gauge("z_seconds").set(2.5);
  registry.counter("a", {{"peer", "10"}}).add(7);
  registry.counter("a", {{"peer", "1"}}).add();
  Histogram& histogram = registry.histogram("m");
  histogram.observe(1);
  histogram.observe(3);
  histogram.observe(std::nan(""));
  const Snapshot snapshot = registry.snapshot();
  ASSERT_EQ(snapshot.samples.size(), 4);
  EXPECT_EQ(snapshot.samples[0], (Sample{.name = "a", .labels = {{"peer", "1"}}, .count = 1}));
  EXPECT_EQ(snapshot.samples[1], (Sample{.name = "a", .labels = {{"peer", "10"}}, .count = 7}));
  EXPECT_EQ(snapshot.samples[2].count, 2);
  EXPECT_EQ(snapshot.samples[2].value, 4);
  EXPECT_EQ(snapshot.samples[2].buckets[static_cast<std::size_t>(HistogramBuckets::index_of(3))],
            1);
  EXPECT_EQ(snapshot.samples[3],
            (Sample{.name = "z_seconds", .kind = MetricKind::kGauge, .value = 2.5}));
  // A value: later changes don't reach it.
  registry.gauge("z_seconds").add(1);
  EXPECT_EQ(snapshot.samples[3].value, 2.5);
  EXPECT_EQ(registry.snapshot().samples[3].value, 3.5);
}

TEST(Registry, BeyondTheBoundInstrumentsWorkAndAreCounted) {
  Registry registry;
  for (std::size_t i = 0; i < Registry::kSeriesMax; ++i)
    registry.counter("peer_bytes", {{"peer", std::to_string(i)}}).add();
  Counter& extra = registry.counter("peer_bytes", {{"peer", "one more"}});
  extra.add(5);
  registry.histogram("waits", {{"peer", "one more"}}).observe(1);
  const Snapshot snapshot = registry.snapshot();
  EXPECT_EQ(snapshot.samples.size(), Registry::kSeriesMax + 1);
  EXPECT_EQ(snapshot.samples.back().name, "swarmline_metrics_dropped");
  EXPECT_EQ(snapshot.samples.back().count, 2);
  EXPECT_EQ(registry.counter("peer_bytes", {{"peer", "0"}}).value(),
            1);  // those within still answer
}

TEST(Registry, InstrumentsCountFromManyThreads) {
  Registry registry;
  Counter& counter = registry.counter("jobs");
  Gauge& gauge = registry.gauge("level");
  Histogram& histogram = registry.histogram("sizes");
  constexpr int kThreads = 4;
  constexpr int kEach = 5000;
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        counter.add(2);
        gauge.add(1);
        histogram.observe(1);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(counter.value(), 2 * kThreads * kEach);
  EXPECT_EQ(gauge.value(), kThreads * kEach);
  EXPECT_EQ(histogram.count(HistogramBuckets::index_of(1)), kThreads * kEach);
  EXPECT_EQ(histogram.sum(), kThreads * kEach);
}

TEST(RegistryDeathTest, RefusesBadNames) {
  Registry registry;
  EXPECT_DEATH(registry.counter("Bad Name"), "Bad Name");
  EXPECT_DEATH(registry.counter("x", {{"a", "1"}, {"a", "2"}}), "");
  registry.counter("x");
  EXPECT_DEATH(registry.gauge("x"), "two kinds");
}

}  // namespace
}  // namespace swarmline
