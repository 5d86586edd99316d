// What a living run's balancer sees, from the run's status: `swarmline plan` of a run.
//   What:    the snapshot that the run's coordinator plans with, and its options; from a file,
//            either that or a snapshot that somebody wrote (tools/predict/plan_snapshot.h).
//   Errors:  kUserMistake, kIncompatible: where and what was expected. Bounds: those of snapshots.
//   Thread:  any; pure.
#pragma once

#include <string_view>

#include "base/result.h"
#include "pipeline/protocol/run_status.h"
#include "tools/predict/plan_snapshot.h"

namespace swarmline {

Result<PlanQuestion> plan_question_of(const RunStatus& status);

// JSON: a run's status (docs/formats/status.md) or a snapshot (docs/formats/plan.md).
Result<PlanQuestion> parse_status_or_snapshot(std::string_view text);

}  // namespace swarmline
