// Counters, gauges and histograms that a process keeps about itself.
//   Ownership: a Registry owns its instruments; references stay good as long as it lives.
//   Thread:    instruments may be changed from any thread; counter(), gauge(), histogram() and
//              snapshot() are for one thread (the control thread). A snapshot taken during changes
//              holds each of them fully or not at all, except that a histogram's sum may be one
//              observation off its counts.
//   Bounds:    kSeriesMax series; beyond it instruments work, but show up only as
//              swarmline_metrics_dropped.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace swarmline {

// Only ever rises. Units belong into the name: "swarmline_sent_bytes".
class Counter {
 public:
  void add(std::uint64_t amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

class Gauge {
 public:
  void set(double value) { value_.store(value, std::memory_order_relaxed); }
  void add(double amount) { value_.fetch_add(amount, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

// Bucket i counts values in (2^(i - 1 + kLowExponent), 2^(i + kLowExponent)]; the first also takes
// everything below, the last everything above. One cut serves nanoseconds in seconds and terabytes
// in bytes.
struct HistogramBuckets {
  static constexpr int kLowExponent = -30;                         // about 1e-9
  static constexpr int kHighExponent = 41;                         // about 2e12
  static constexpr int kCount = kHighExponent - kLowExponent + 2;  // and one without an upper bound
  static int index_of(double value);
  static double upper_bound(int index);  // infinite for the last
};

class Histogram {
 public:
  // A NaN is not counted.
  void observe(double value);
  std::uint64_t count(int bucket) const {
    return counts_[static_cast<std::size_t>(bucket)].load(std::memory_order_relaxed);
  }
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<std::uint64_t>, HistogramBuckets::kCount> counts_{};
  std::atomic<double> sum_{0};
};

// ("stage", "2"); kept sorted by name.
using Labels = std::vector<std::pair<std::string, std::string>>;

enum class MetricKind : std::uint8_t { kCounter, kGauge, kHistogram };

struct Sample {
  std::string name;
  Labels labels;
  MetricKind kind = MetricKind::kCounter;
  std::uint64_t count = 0;             // counter: its value; histogram: observations
  double value = 0;                    // gauge: its value; histogram: the sum
  std::vector<std::uint64_t> buckets;  // histogram: HistogramBuckets::kCount counts, not cumulative
  bool operator==(const Sample&) const = default;
};

// By name, then by labels.
struct Snapshot {
  std::vector<Sample> samples;
  bool operator==(const Snapshot&) const = default;
};

class Registry {
 public:
  static constexpr std::size_t kSeriesMax = 10'000;

  // The instrument of that name and labels, made at the first call. CHECKs: names are
  // [a-z_][a-z0-9_]*, label names are distinct, and one name has one kind.
  Counter& counter(std::string_view name, Labels labels = {});
  Gauge& gauge(std::string_view name, Labels labels = {});
  Histogram& histogram(std::string_view name, Labels labels = {});

  Snapshot snapshot() const;

 private:
  struct Series {
    MetricKind kind = MetricKind::kCounter;
    std::unique_ptr<Counter> counter;
    std::unique_ptr<Gauge> gauge;
    std::unique_ptr<Histogram> histogram;
  };
  using Key = std::pair<std::string, Labels>;

  Series& find_or_make(std::string_view name, Labels labels, MetricKind kind);
  static Series make_series(MetricKind kind);

  std::map<Key, Series> series_;
  std::map<std::string, MetricKind, std::less<>> kinds_;
  // What calls beyond the bound share, one for each kind.
  std::array<Series, 3> overflow_{};
  std::uint64_t dropped_ = 0;
};

}  // namespace swarmline
