// A fleet plan for people, for programs (docs/formats/fleet_plan.md, kind "plan") and as a plot.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "tools/plot/line_plot.h"
#include "tools/predict/fleet_plan.h"

namespace swarmline {

inline constexpr int kFleetPlanFormat = 1;

// One sentence: the cheapest setting, what it costs, and how that compares.
std::string fleet_plan_advice(const FleetPlan& plan);
// The advice, a table of all ways, and what the plan's own setting waits for.
std::string fleet_plan_text(const FleetPlanQuestion& question, const FleetPlan& plan,
                            const FleetPrediction& prediction,
                            const std::vector<FleetChange>& changes);
std::string fleet_plan_json(const FleetPlanQuestion& question, const FleetPlan& plan,
                            const FleetPrediction& prediction,
                            const std::vector<FleetChange>& changes);
// Dollars for a billion tokens over machines, a line for each way.
LinePlot fleet_plan_plot(const FleetPlanQuestion& question, const FleetPlan& plan);

}  // namespace swarmline
