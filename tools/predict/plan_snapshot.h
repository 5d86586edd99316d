// A swarm written down for the planner: `swarmline plan SNAPSHOT.json`.
//   Format:  docs/formats/plan.md, number kPlanFormat.
//   Errors:  kUserMistake with the place ("peers[3].speed") and what was expected; kIncompatible.
//   Bounds:  kPlanFileBytesMax, kPlanStagesMax, kPlanPeersMax. Thread: any.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "balancer/plan.h"
#include "base/result.h"

namespace swarmline {

inline constexpr int kPlanFormat = 1;
inline constexpr std::uint64_t kPlanFileBytesMax = 64ULL << 20;
inline constexpr std::size_t kPlanStagesMax = 1024;
inline constexpr std::size_t kPlanPeersMax = 10'000;

struct PlanQuestion {
  PlanSnapshot snapshot;
  PlanOptions options;
  bool moves = true;                    // false: the run's config moves nobody who serves
  std::map<PeerId, std::string> names;  // of a run's peers; a snapshot's have none
};

Result<PlanQuestion> parse_plan_question(std::string_view text);

}  // namespace swarmline
