// A simulated scenario for people, for programs (docs/formats/simulation.md) and drawn. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "sim/scenario/simulation.h"
#include "tools/plot/line_plot.h"

namespace swarmline {

// Throughput over time beside its optimum, in tokens a second.
LinePlot simulation_plot(const ScenarioResult& result, double tokens_per_microbatch);
// Several lines, each ended, with the plot in `columns` columns.
std::string simulation_text(const Scenario& scenario, const ScenarioResult& result,
                            std::size_t columns);
std::string simulation_json(const Scenario& scenario, const ScenarioResult& result);

}  // namespace swarmline
