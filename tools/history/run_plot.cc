#include "tools/history/run_plot.h"

#include <algorithm>
#include <functional>
#include <map>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace swarmline {
namespace {

using Steps = std::span<const StepHistory>;

// Where along the axis each step ends.
std::vector<double> places(const RunHistory& history, PlotAxis axis) {
  std::vector<double> at;
  double tokens = 0, seconds = 0;
  for (const StepHistory& step : history.steps) {
    tokens += static_cast<double>(step.tokens);
    seconds += step.seconds;
    switch (axis) {
      case PlotAxis::kSteps:
        at.push_back(static_cast<double>(step.step + 1));
        break;
      case PlotAxis::kTokens:
        at.push_back(tokens);
        break;
      case PlotAxis::kMinutes:
        at.push_back(seconds / 60);
        break;
    }
  }
  return at;
}

std::string label_of(PlotAxis axis) {
  switch (axis) {
    case PlotAxis::kSteps:
      return "step";
    case PlotAxis::kTokens:
      return "tokens";
    case PlotAxis::kMinutes:
      return "minutes of training";
  }
  return "";
}

// `value` of groups of steps that follow each other; none: no point there.
std::vector<std::pair<double, double>> grouped(
    const RunHistory& history, PlotAxis axis,
    const std::function<std::optional<double>(Steps)>& value) {
  const std::vector<double> at = places(history, axis);
  const std::size_t each = std::max<std::size_t>(1, history.steps.size() / kPlotPoints);
  std::vector<std::pair<double, double>> points;
  for (std::size_t begin = 0; begin < at.size(); begin += each) {
    const std::size_t count = std::min(each, at.size() - begin);
    if (const auto y = value(Steps(history.steps).subspan(begin, count)))
      points.emplace_back(at[begin + count - 1], *y);
  }
  return points;
}

std::optional<double> mean_loss(Steps steps) {
  double sum = 0;
  std::size_t count = 0;
  for (const StepHistory& step : steps)
    if (step.loss) sum += *step.loss, ++count;
  return count == 0 ? std::nullopt : std::optional(sum / static_cast<double>(count));
}

std::optional<double> tokens_per_second(Steps steps) {
  double tokens = 0, seconds = 0;
  for (const StepHistory& step : steps) {
    tokens += static_cast<double>(step.tokens);
    seconds += step.seconds;
  }
  return seconds > 0 ? std::optional(tokens / seconds) : std::nullopt;
}

std::vector<std::pair<double, double>> held_out(const RunHistory& history, PlotAxis axis) {
  const std::vector<double> at = places(history, axis);
  std::vector<std::pair<double, double>> points;
  for (const EvalHistory& eval : history.evals) {
    const auto step = std::ranges::lower_bound(history.steps, eval.version, {},
                                               [](const StepHistory& s) { return s.step + 1; });
    if (step == history.steps.end()) continue;
    points.emplace_back(at[static_cast<std::size_t>(step - history.steps.begin())], eval.loss);
  }
  return points;
}

std::map<std::uint64_t, std::uint64_t> contributions(Steps steps, std::uint64_t stage) {
  std::map<std::uint64_t, std::uint64_t> of;
  for (const StepHistory& step : steps)
    for (const StepHistory::Peer& peer : step.peers)
      if (peer.stage == stage) of[peer.peer] += peer.microbatches;
  return of;
}

// As its newest line calls it.
std::string name_of(Steps steps, std::uint64_t number) {
  for (auto step = steps.rbegin(); step != steps.rend(); ++step)
    for (const StepHistory::Peer& peer : step->peers)
      if (peer.peer == number && !peer.name.empty()) return peer.name;
  return fmt::format("peer {}", number);
}

}  // namespace

LinePlot plot_loss(const std::vector<NamedHistory>& runs, PlotAxis axis) {
  LinePlot plot{.title = "Loss",
                .x_label = label_of(axis),
                .y_label = "nats per token",
                .y_range = {},
                .lines = {}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    plot.lines.push_back({.label = runs[i].name,
                          .points = grouped(runs[i].history, axis, mean_loss),
                          .style = i,
                          .dashed = false});
    if (auto points = held_out(runs[i].history, axis); !points.empty())
      plot.lines.push_back({.label = runs[i].name + ", held out",
                            .points = std::move(points),
                            .style = i,
                            .dashed = true});
  }
  return plot;
}

LinePlot plot_throughput(const std::vector<NamedHistory>& runs, PlotAxis axis) {
  LinePlot plot{.title = "Throughput",
                .x_label = label_of(axis),
                .y_label = "tokens per second",
                .y_range = {},
                .lines = {}};
  for (std::size_t i = 0; i < runs.size(); ++i)
    plot.lines.push_back({.label = runs[i].name,
                          .points = grouped(runs[i].history, axis, tokens_per_second),
                          .style = i,
                          .dashed = false});
  return plot;
}

LinePlot plot_shares(const NamedHistory& run, std::uint64_t stage, PlotAxis axis) {
  LinePlot plot{.title = fmt::format("{}: shares of stage {}", run.name, stage),
                .x_label = label_of(axis),
                .y_label = "share of the contributions",
                .y_range = std::pair(0.0, 1.0),
                .lines = {}};
  const auto all = contributions(run.history.steps, stage);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> most(all.begin(), all.end());
  std::ranges::sort(most, {}, [](const auto& entry) {
    return std::pair(~entry.second, entry.first);  // most first
  });
  if (most.size() > kPlotStyles) most.resize(kPlotStyles);
  std::ranges::sort(most);
  for (const auto& [peer, total] : most) {
    const auto share = [&, number = peer](Steps steps) -> std::optional<double> {
      const auto of = contributions(steps, stage);
      double sum = 0;
      for (const auto& [other, count] : of) sum += static_cast<double>(count);
      const auto own = of.find(number);
      if (sum <= 0) return std::nullopt;
      return own == of.end() ? 0 : static_cast<double>(own->second) / sum;
    };
    plot.lines.push_back({.label = name_of(run.history.steps, peer),
                          .points = grouped(run.history, axis, share),
                          .style = plot.lines.size(),
                          .dashed = false});
  }
  return plot;
}

}  // namespace swarmline
