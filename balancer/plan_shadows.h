// The plan's shadows: who follows which stage from now on. Part of plan.h, after the moves.
//   Under "auto" a shadow is hosted where its download and its load leave the slowest stage as fast
//   as it is, and dropped from a host that has become one of those everybody waits for.
#pragma once

#include <vector>

#include "balancer/plan.h"
#include "balancer/plan_board.h"

namespace swarmline {

std::vector<ShadowChange> plan_shadows(const PlanBoard& board, const PlanOptions& options);

}  // namespace swarmline
