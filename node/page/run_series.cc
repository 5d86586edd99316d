#include "node/page/run_series.h"

#include <algorithm>
#include <utility>

#include "base/printable.h"
#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kPageFormat = 1;
constexpr std::size_t kKindBytesMax = 64;
constexpr std::size_t kDetailBytesMax = 1000;
constexpr const char* kOtherKinds = "other";

// Of two that follow each other.
RunSeries::Point together(const RunSeries::Point& a, const RunSeries::Point& b) {
  const auto steps = static_cast<double>(a.steps + b.steps);
  const auto mean = [&](double of_a, double of_b) {
    return (of_a * static_cast<double>(a.steps) + of_b * static_cast<double>(b.steps)) / steps;
  };
  RunSeries::Point point = b;
  point.steps = a.steps + b.steps;
  if (a.loss && b.loss) point.loss = mean(*a.loss, *b.loss);
  if (a.loss && !b.loss) point.loss = a.loss;
  point.gradient_norm = mean(a.gradient_norm, b.gradient_norm);
  point.tokens += a.tokens;
  point.seconds += a.seconds;
  point.boundary_bytes += a.boundary_bytes;
  point.averaging_bytes += a.averaging_bytes;
  point.second_tries += a.second_tries;
  return point;
}

void write(JsonWriter& json, const RunSeries::Point& point) {
  json.begin_object().member("step", point.step).member("steps", point.steps);
  json.member("loss", point.loss).member("tokens", point.tokens);
  json.member("seconds", point.seconds).member("wall_seconds", point.wall_seconds);
  json.member("gradient_norm", point.gradient_norm).member("learning_rate", point.learning_rate);
  json.member("boundary_bytes", point.boundary_bytes);
  json.member("averaging_bytes", point.averaging_bytes);
  json.member("second_tries", point.second_tries).end_object();
}

void write(JsonWriter& json, const RunSeries::Eval& eval) {
  json.begin_object().member("step", eval.step).member("loss", eval.loss);
  json.member("wall_seconds", eval.wall_seconds).end_object();
}

void write(JsonWriter& json, const LoggedEvent& event) {
  json.begin_object().member("wall_seconds", event.wall_seconds).member("kind", event.kind);
  json.member("level", event.level).member("detail", event.detail).end_object();
}

template <typename Item>
std::string json_of(const Item& item) {
  JsonWriter json;
  write(json, item);
  return json.take();
}

}  // namespace

void RunSeries::add(const LogEntry& entry) {
  if (const auto* step = std::get_if<LoggedStep>(&entry)) {
    add_point({.step = step->step + 1,
               .steps = 1,
               .loss = step->loss,
               .tokens = step->tokens,
               .seconds = step->seconds,
               .wall_seconds = step->wall_seconds,
               .gradient_norm = step->gradient_norm,
               .learning_rate = step->learning_rate,
               .boundary_bytes = step->boundary_bytes,
               .averaging_bytes = step->averaging_bytes,
               .second_tries = step->second_tries});
  } else if (const auto* eval = std::get_if<LoggedEval>(&entry)) {
    add_eval({.step = eval->version, .loss = eval->loss, .wall_seconds = eval->wall_seconds});
  } else {
    add_event(std::get<LoggedEvent>(entry));
  }
}

void RunSeries::append(const RunSeries& later) {
  for (const Point& point : later.points_) add_point(point);
  for (const Eval& eval : later.evals_) add_eval(eval);
  const double newest = events_.empty() ? 0 : events_.back().wall_seconds;
  for (const LoggedEvent& event : later.events_)
    if (event.wall_seconds > newest) add_event(event);
}

// What was committed from there on before a return to a checkpoint is over. Of a point that began
// before the step the rest stays.
void RunSeries::add_point(const Point& point) {
  while (!points_.empty() && points_.back().step - points_.back().steps + 1 >= point.step)
    points_.pop_back();
  if (!points_.empty() && points_.back().step >= point.step) {
    Point& last = points_.back();
    const std::uint64_t over = last.step - point.step + 1;
    last.step -= over;
    last.steps -= over;
  }
  points_.push_back(point);
  if (points_.size() > kPointsMax) thin_out();
}

// Pairs of the older half.
void RunSeries::thin_out() {
  const std::size_t half = points_.size() / 4 * 2;
  std::vector<Point> thinner;
  for (std::size_t i = 0; i < half; i += 2) thinner.push_back(together(points_[i], points_[i + 1]));
  thinner.insert(thinner.end(), points_.begin() + static_cast<std::ptrdiff_t>(half), points_.end());
  points_ = std::move(thinner);
}

void RunSeries::add_eval(const Eval& eval) {
  while (!evals_.empty() && evals_.back().step >= eval.step) evals_.pop_back();
  evals_.push_back(eval);
  if (evals_.size() <= kEvalsMax) return;
  std::vector<Eval> thinner;  // every second one, and the newest
  for (std::size_t i = evals_.size() % 2; i < evals_.size(); i += 2)
    thinner.push_back(evals_[std::min(i + 1, evals_.size() - 1)]);
  evals_ = std::move(thinner);
}

void RunSeries::add_event(const LoggedEvent& event) {
  events_.push_back({.kind = printable(event.kind, kKindBytesMax),
                     .detail = printable(event.detail, kDetailBytesMax),
                     .wall_seconds = event.wall_seconds,
                     .level = printable(event.level, kKindBytesMax)});
  if (events_.size() > kEventsMax) events_.pop_front();
  const std::string& kind = events_.back().kind;
  ++kinds_[kinds_.size() < kKindsMax || kinds_.contains(kind) ? kind : kOtherKinds];
}

std::string to_json(const RunSeries::Point& point) {
  return json_of(point);
}
std::string to_json(const RunSeries::Eval& eval) {
  return json_of(eval);
}
std::string to_json(const LoggedEvent& event) {
  return json_of(event);
}

std::string steps_json(const RunSeries& series, std::uint64_t from) {
  const auto& points = series.points();
  auto at = std::ranges::lower_bound(points, from, {}, &RunSeries::Point::step);
  JsonWriter json;
  json.begin_object().member("format", kPageFormat).key("steps").begin_array();
  for (std::size_t count = 0; at != points.end() && count < kPointsAtOnce; ++at, ++count)
    write(json, *at);
  json.end_array().key("next");
  at == points.end() ? json.null() : json.value(at->step);
  json.key("evals").begin_array();
  for (const RunSeries::Eval& eval : series.evals())
    if (eval.step >= from) write(json, eval);
  json.end_array().end_object();
  return json.take();
}

std::string events_json(const RunSeries& series) {
  JsonWriter json;
  json.begin_object().member("format", kPageFormat).key("events").begin_array();
  for (const LoggedEvent& event : series.events()) write(json, event);
  json.end_array().end_object();
  return json.take();
}

}  // namespace swarmline
