#include "engine/metrics/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/check.h"

namespace swarmline {
namespace {

constexpr std::string_view kDroppedName = "swarmline_metrics_dropped";

bool is_metric_name(std::string_view name) {
  const auto lower = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  const auto allowed = [&](char c) { return lower(c) || (c >= '0' && c <= '9'); };
  return !name.empty() && lower(name.front()) && std::ranges::all_of(name, allowed);
}

}  // namespace

int HistogramBuckets::index_of(double value) {
  if (!(value > std::ldexp(1.0, kLowExponent))) return 0;
  if (value > std::ldexp(1.0, kHighExponent)) return kCount - 1;
  int exponent = 0;
  const double fraction =
      std::frexp(value, &exponent);  // value = fraction 2^exponent, fraction in [0.5, 1)
  if (fraction == 0.5) --exponent;   // bounds belong to the bucket below them
  return exponent - kLowExponent;
}

double HistogramBuckets::upper_bound(int index) {
  SWARMLINE_CHECK(index >= 0 && index < kCount);
  return index == kCount - 1 ? std::numeric_limits<double>::infinity()
                             : std::ldexp(1.0, index + kLowExponent);
}

void Histogram::observe(double value) {
  if (std::isnan(value)) return;
  const auto bucket = static_cast<std::size_t>(HistogramBuckets::index_of(value));
  counts_[bucket].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

Registry::Series Registry::make_series(MetricKind kind) {
  Series series{.kind = kind};
  switch (kind) {
    case MetricKind::kCounter:
      series.counter = std::make_unique<Counter>();
      break;
    case MetricKind::kGauge:
      series.gauge = std::make_unique<Gauge>();
      break;
    case MetricKind::kHistogram:
      series.histogram = std::make_unique<Histogram>();
      break;
  }
  return series;
}

Registry::Series& Registry::find_or_make(std::string_view name, Labels labels, MetricKind kind) {
  SWARMLINE_CHECK_MSG(is_metric_name(name), std::string(name));
  const auto [known, is_new] = kinds_.try_emplace(std::string(name), kind);
  SWARMLINE_CHECK_MSG(known->second == kind, std::string(name) + " has two kinds");
  std::ranges::sort(labels);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    SWARMLINE_CHECK_MSG(is_metric_name(labels[i].first), labels[i].first);
    SWARMLINE_CHECK_MSG(i == 0 || labels[i - 1].first != labels[i].first, labels[i].first);
  }
  Key key{std::string(name), std::move(labels)};
  if (const auto found = series_.find(key); found != series_.end()) return found->second;
  if (series_.size() < kSeriesMax)
    return series_.emplace(std::move(key), make_series(kind)).first->second;
  ++dropped_;
  Series& shared = overflow_[static_cast<std::size_t>(kind)];
  if (!shared.counter && !shared.gauge && !shared.histogram) shared = make_series(kind);
  return shared;
}

Counter& Registry::counter(std::string_view name, Labels labels) {
  return *find_or_make(name, std::move(labels), MetricKind::kCounter).counter;
}

Gauge& Registry::gauge(std::string_view name, Labels labels) {
  return *find_or_make(name, std::move(labels), MetricKind::kGauge).gauge;
}

Histogram& Registry::histogram(std::string_view name, Labels labels) {
  return *find_or_make(name, std::move(labels), MetricKind::kHistogram).histogram;
}

Snapshot Registry::snapshot() const {
  Snapshot snapshot;
  for (const auto& [key, series] : series_) {
    Sample sample{.name = key.first, .labels = key.second, .kind = series.kind};
    switch (series.kind) {
      case MetricKind::kCounter:
        sample.count = series.counter->value();
        break;
      case MetricKind::kGauge:
        sample.value = series.gauge->value();
        break;
      case MetricKind::kHistogram:
        sample.value = series.histogram->sum();
        for (int i = 0; i < HistogramBuckets::kCount; ++i) {
          sample.buckets.push_back(series.histogram->count(i));
          sample.count += sample.buckets.back();
        }
        break;
    }
    snapshot.samples.push_back(std::move(sample));
  }
  if (dropped_ > 0)
    snapshot.samples.push_back({.name = std::string(kDroppedName), .count = dropped_});
  std::ranges::sort(snapshot.samples, {},
                    [](const Sample& sample) { return std::tie(sample.name, sample.labels); });
  return snapshot;
}

}  // namespace swarmline
