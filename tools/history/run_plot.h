// Plots of runs: loss, throughput, and who computed how much.
//   What:    many steps are drawn as kPlotPoints means, of equally many steps each.
//   Thread:  pure functions. Ownership: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/history/run_history.h"
#include "tools/plot/line_plot.h"

namespace swarmline {

inline constexpr std::size_t kPlotPoints = 240;  // of a line

struct NamedHistory {
  std::string name;
  RunHistory history;
};

enum class PlotAxis : std::uint8_t { kSteps, kTokens, kMinutes };

// Loss in training, and dashed on held-out data, of each run.
LinePlot plot_loss(const std::vector<NamedHistory>& runs, PlotAxis axis);
// Tokens a second of each run.
LinePlot plot_throughput(const std::vector<NamedHistory>& runs, PlotAxis axis);
// What share of the stage's contributions each of its peers had. Of the peers with most, as many as
// there are styles of lines.
LinePlot plot_shares(const NamedHistory& run, std::uint64_t stage, PlotAxis axis);

}  // namespace swarmline
