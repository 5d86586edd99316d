#include "engine/metrics/render.h"

#include <cmath>
#include <string_view>

#include <fmt/format.h>

namespace swarmline {
namespace {

constexpr int kJsonFormat = 1;

std::string_view kind_name(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return "counter";
    case MetricKind::kGauge:
      return "gauge";
    case MetricKind::kHistogram:
      return "histogram";
  }
  return "?";
}

std::string prometheus_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

std::string prometheus_escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out;
}

// {a="1",b="2"}, with `le` last when given; nothing for no labels.
std::string prometheus_labels(const Labels& labels, std::string_view le = {}) {
  std::string text;
  const auto append = [&](std::string_view name, std::string_view value) {
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", name, prometheus_escape(value));
  };
  for (const auto& [name, value] : labels) append(name, value);
  if (!le.empty()) append("le", le);
  return text.empty() ? "" : "{" + text + "}";
}

std::string prometheus_histogram(const Sample& sample) {
  std::string text;
  std::uint64_t cumulative = 0;
  const int last = HistogramBuckets::kCount - 1;
  for (int i = 0; i < last && cumulative < sample.count; ++i) {
    cumulative += sample.buckets[static_cast<std::size_t>(i)];
    if (cumulative == 0) continue;
    const std::string le = prometheus_number(HistogramBuckets::upper_bound(i));
    text += fmt::format("{}_bucket{} {}\n", sample.name, prometheus_labels(sample.labels, le),
                        cumulative);
  }
  const std::string labels = prometheus_labels(sample.labels);
  text += fmt::format("{}_bucket{} {}\n", sample.name, prometheus_labels(sample.labels, "+Inf"),
                      sample.count);
  text += fmt::format("{}_sum{} {}\n", sample.name, labels, prometheus_number(sample.value));
  return text + fmt::format("{}_count{} {}\n", sample.name, labels, sample.count);
}

std::string json_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + "\"";
}

std::string json_values(const Sample& sample) {
  if (sample.kind == MetricKind::kCounter) return fmt::format("\"value\":{}", sample.count);
  if (sample.kind == MetricKind::kGauge)
    return fmt::format("\"value\":{}", json_number(sample.value));
  std::string buckets;
  for (int i = 0; i < HistogramBuckets::kCount; ++i) {
    const std::uint64_t count = sample.buckets[static_cast<std::size_t>(i)];
    if (count == 0) continue;
    buckets += fmt::format("{}[{},{}]", buckets.empty() ? "" : ",",
                           json_number(HistogramBuckets::upper_bound(i)), count);
  }
  return fmt::format("\"count\":{},\"sum\":{},\"buckets\":[{}]", sample.count,
                     json_number(sample.value), buckets);
}

}  // namespace

std::string to_prometheus(const Snapshot& snapshot) {
  std::string text;
  std::string_view name;
  for (const Sample& sample : snapshot.samples) {
    const std::string_view suffix = sample.kind == MetricKind::kCounter ? "_total" : "";
    if (sample.name != name)
      text += fmt::format("# TYPE {}{} {}\n", sample.name, suffix, kind_name(sample.kind));
    name = sample.name;
    const std::string labels = prometheus_labels(sample.labels);
    switch (sample.kind) {
      case MetricKind::kCounter:
        text += fmt::format("{}{}{} {}\n", sample.name, suffix, labels, sample.count);
        break;
      case MetricKind::kGauge:
        text += fmt::format("{}{} {}\n", sample.name, labels, prometheus_number(sample.value));
        break;
      case MetricKind::kHistogram:
        text += prometheus_histogram(sample);
        break;
    }
  }
  return text;
}

std::string to_json_line(const Snapshot& snapshot) {
  std::string metrics;
  for (const Sample& sample : snapshot.samples) {
    std::string labels;
    for (const auto& [name, value] : sample.labels)
      labels +=
          fmt::format("{}{}:{}", labels.empty() ? "" : ",", json_string(name), json_string(value));
    metrics += fmt::format("{}{{\"name\":{},\"labels\":{{{}}},\"kind\":\"{}\",{}}}",
                           metrics.empty() ? "" : ",", json_string(sample.name), labels,
                           kind_name(sample.kind), json_values(sample));
  }
  return fmt::format("{{\"format\":{},\"metrics\":[{}]}}", kJsonFormat, metrics);
}

}  // namespace swarmline
