// A fleet's prediction for people and for programs (docs/formats/fleet_plan.md, kind
// "prediction"). Pure.
#pragma once

#include <string>
#include <vector>

#include "engine/store/json_writer.h"
#include "tools/predict/fleet_prediction.h"

namespace swarmline {

inline constexpr int kFleetPredictionFormat = 1;

std::string fleet_prediction_text(const FleetQuestion& question, const FleetPrediction& prediction,
                                  const std::vector<FleetChange>& changes);
std::string fleet_prediction_json(const FleetQuestion& question, const FleetPrediction& prediction,
                                  const std::vector<FleetChange>& changes);
// The same object as a part of another one.
void add_fleet_prediction(JsonWriter& json, const FleetQuestion& question,
                          const FleetPrediction& prediction,
                          const std::vector<FleetChange>& changes);

}  // namespace swarmline
