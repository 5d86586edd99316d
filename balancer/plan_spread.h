// Moves that only spread: a stage all of whose holders are in one zone gets one from another zone,
// where that costs next to nothing. Part of plan.h, after all other moves.
#pragma once

#include <cstddef>
#include <optional>

#include "balancer/plan.h"
#include "balancer/plan_board.h"

namespace swarmline {

// One peer that goes to the stage, or two that change places.
struct SpreadStep {
  std::size_t peer = kNowhere;
  std::size_t swapped = kNowhere;  // leaves the stage
  double cost = 0;                 // share of the horizon's throughput
};

// The cheapest one within PlanOptions::spread_cost_max; of equals the first. No stage has less
// redundancy by it when everybody has arrived; on the way only for that share of the horizon.
//   Cost: O(peers of the stage x peers).
std::optional<SpreadStep> cheapest_spread(const PlanBoard& board, std::size_t stage,
                                          const PlanOptions& options);

}  // namespace swarmline
