// Dividing the model's layers over stages.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "engine/model/model_spec.h"

namespace swarmline {

struct CutOptions {
  std::uint32_t stages = 1;
  std::uint32_t share_layers = 1;     // cuts only at multiples: a shared block stays inside a stage
  std::vector<double> stage_speeds;   // what serves each stage (any common unit, > 0); empty: equal
  std::vector<std::uint32_t> layers;  // explicit: layers per stage; empty: by cost
};

// Stages in order, every layer once, at least one block (share_layers layers) a stage. By cost:
// minimises the largest (layers + what the ends add) / speed exactly; among equals the cut whose
// costs have the least sum of squares.
//   Errors: kUserMistake, naming the key ([pipeline] stages or layers) and what would fit.
//   Cost:   O(stages * blocks^2).
Result<std::vector<StageSpec>> cut_layers(const ModelCosts& costs, const CutOptions& options);

// Forward + backward FLOPs of one sequence at that stage.
double stage_flops(const ModelCosts& costs, const StageSpec& stage);

}  // namespace swarmline
