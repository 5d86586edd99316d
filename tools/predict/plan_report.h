// A plan for people and for programs (docs/formats/plan.md), and what a replayed fleet makes of the
// ways to balance (docs/balancing.md). Thread: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "balancer/plan.h"
#include "sim/fleet/fleet.h"
#include "sim/fleet/replay.h"
#include "tools/predict/plan_snapshot.h"

namespace swarmline {

std::string plan_text(const PlanQuestion& question, const SwarmPlan& plan);
std::string plan_json(const PlanQuestion& question, const SwarmPlan& plan);

// As [optimizer] state says it.
inline constexpr const char* kPlainMoments = "fp32";
inline constexpr const char* kPackedMoments = "8bit";

struct ReplayTableOptions {
  std::vector<std::uint32_t> stages = {4, 8, 16};
  std::uint64_t seeds = 10;     // 1, 2, ...
  bool free = false;            // joins, moves and shadows cost nothing
  bool packed_moments = false;  // optimizer.state = "8bit", all tensors packed
};

struct ReplayRow {
  std::uint32_t stages = 0;
  std::string rule;     // "none", "paper, 300 s", "paper, 60 s", "swarmline", "bound"
  ReplayResult result;  // of all seeds together
};

struct ReplayTable {
  std::string fleet, source;
  std::uint32_t peak = 0;
  double seconds = 0;
  ReplayTableOptions options;
  std::vector<ReplayRow> rows;
};

ReplayTable replay_table(const Fleet& fleet, const ReplayTableOptions& options);
std::string replay_text(const ReplayTable& table);
std::string replay_json(const ReplayTable& table);

}  // namespace swarmline
