// What of its config a run that has begun may change when it is started again, and how.
//   Free:    what shapes neither data nor arithmetic: numbers of peers, network, balancing, logs,
//            checkpoints, evaluations; the number of steps; and, without learned boundaries, the
//            cut.
//   Segment: learning rate and schedule, clip, weight decay, batch, data, codecs, delay, and what a
//            gradient that is not finite does. They begin with a new segment of the run
//            (pipeline/coordinator/run/segments.h). So does run.steps where the schedule ends with
//            the run.
//   Fixed:   everything else.
//   Thread:  pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/config/run_config.h"

namespace swarmline {

struct KeyChange {
  std::string key;            // "optimizer.lr"
  std::string before, after;  // in TOML
  bool operator==(const KeyChange&) const = default;
};

inline constexpr const char* kStepsKey = "run.steps";

// The first fixed key that differs, with both values; empty: none.
std::optional<std::string> fixed_difference(const RunConfig& begun, const RunConfig& wanted);
// The keys of a segment that differ, in the table's order.
std::vector<KeyChange> segment_changes(const RunConfig& begun, const RunConfig& wanted);
// `own`, with the values that `run` has for the keys of a segment; of the data only `with_data`.
RunConfig with_segment_of(const RunConfig& own, const RunConfig& run, bool with_data = true);

bool changes_data(const std::vector<KeyChange>& changes);
bool changes_codecs(const std::vector<KeyChange>& changes);

}  // namespace swarmline
