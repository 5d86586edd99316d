// A fleet's prediction for people and for programs (docs/formats/bench.md, kind "fleet"). Pure.
#pragma once

#include <string>
#include <vector>

#include "tools/predict/bench_fleet.h"

namespace swarmline {

inline constexpr int kFleetBenchFormat = 1;

std::string fleet_prediction_text(const FleetQuestion& question, const FleetPrediction& prediction,
                                  const std::vector<FleetChange>& changes);
std::string fleet_prediction_json(const FleetQuestion& question, const FleetPrediction& prediction,
                                  const std::vector<FleetChange>& changes);

}  // namespace swarmline
