// What a run's page shows over time: steps, evaluations and events, from the lines of log.jsonl.
//   What:   of many steps the older ones share points: a point is the mean of `steps` steps, or
//           their sum. Of a step that was committed again the newest line counts.
//   Units:  losses in nats per token; wall seconds since 1970; steps count from 1, as everything
//           that people read.
//   Bounds: kPointsMax, kEvalsMax, kEventsMax (the newest), kKindsMax kinds of events, counted.
//   Thread: any, one at a time. Ownership: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/store/log_reader.h"

namespace swarmline {

class RunSeries {
 public:
  static constexpr std::size_t kPointsMax = 8192;
  static constexpr std::size_t kEvalsMax = 2048;
  static constexpr std::size_t kEventsMax = 256;
  static constexpr std::size_t kKindsMax = 64;

  struct Point {
    std::uint64_t step = 0;   // the last one
    std::uint64_t steps = 1;  // so many
    std::optional<double> loss;
    std::uint64_t tokens = 0;
    double seconds = 0;
    double wall_seconds = 0;  // of the last one
    double gradient_norm = 0, learning_rate = 0;
    std::uint64_t boundary_bytes = 0, averaging_bytes = 0, second_tries = 0;
  };
  struct Eval {
    std::uint64_t step = 0;  // after so many
    double loss = 0;
    double wall_seconds = 0;
  };

  void add(const LogEntry& entry);
  // What came after what is here; what both have counts once.
  void append(const RunSeries& later);

  const std::vector<Point>& points() const { return points_; }
  const std::vector<Eval>& evals() const { return evals_; }
  const std::deque<LoggedEvent>& events() const { return events_; }  // oldest first
  const std::map<std::string, std::uint64_t>& events_by_kind() const { return kinds_; }

 private:
  void add_point(const Point& point);
  void add_eval(const Eval& eval);
  void add_event(const LoggedEvent& event);
  void thin_out();
  std::vector<Point> points_;  // ascending
  std::vector<Eval> evals_;    // ascending
  std::deque<LoggedEvent> events_;
  std::map<std::string, std::uint64_t> kinds_;
};

// ---- As JSON (docs/formats/page.md) ----
std::string to_json(const RunSeries::Point& point);
std::string to_json(const RunSeries::Eval& eval);
std::string to_json(const LoggedEvent& event);
inline constexpr std::size_t kPointsAtOnce = 1000;
// The points from the step `from` on, kPointsAtOnce of them at most, and where the next begin; all
// evaluations from there on.
std::string steps_json(const RunSeries& series, std::uint64_t from);
std::string events_json(const RunSeries& series);

}  // namespace swarmline
