// A run cut into so many stages on equal machines: what a stage holds, whether it fits, how fast
// it trains.
//   Units:  bytes, seconds. Thread: any; pure.
//   Errors: kUserMistake: the model has no such cut, or a stage of it does not fit the machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "sim/fleet/work_timeline.h"
#include "tools/predict/fleet_prediction.h"

namespace swarmline {

struct FleetLayout {
  std::uint32_t stages = 1;
  double parameters = 0;     // of the largest stage
  double state_bytes = 0;    // parameters and optimizer state: what a newcomer fetches
  double state_seconds = 0;  // until it has it, or until a checkpoint of it is written
  bool recompute = false;    // activations are dropped so that it fits
};

// `question.classes` is the one class of machines.
Result<FleetLayout> fleet_layout(const FleetQuestion& question, std::uint32_t stages);

// `question` with that cut, so many of its machines at each stage, and a codec for activations and
// their gradients.
FleetQuestion question_of_layout(const FleetQuestion& question, const FleetLayout& layout,
                                 std::uint32_t peers_a_stage, const std::string& codec);

struct LayoutRate {
  std::string codec;  // of activations and their gradients
  TrainingRate training;
  // What a step sends: over boundaries, and for averaging with every peer a stage beyond the first.
  double boundary_bytes = 0;
  double averaging_bytes = 0;
  double step_bytes(double peers_a_stage) const {
    return boundary_bytes + averaging_bytes * std::max(peers_a_stage - 1, 0.0);
  }
};
// With 1 to peers_max machines at each stage.
Result<LayoutRate> layout_rate(const FleetQuestion& question, const FleetLayout& layout,
                               std::uint32_t peers_max, const std::string& codec);

}  // namespace swarmline
