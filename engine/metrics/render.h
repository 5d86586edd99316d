// A Snapshot as text. Pure: the same snapshot gives the same bytes.
#pragma once

#include <string>

#include "engine/metrics/metrics.h"

namespace swarmline {

// Prometheus text exposition format 0.0.4. Counters get the suffix "_total"; a histogram's buckets
// are cumulative and left out below its first and above its last observation, but for le="+Inf".
std::string to_prometheus(const Snapshot& snapshot);

// One JSON object without a line end:
//   {"format":1,"metrics":[{"name":"x","labels":{"stage":"2"},"kind":"counter","value":3}, ...]}
// A histogram has "count", "sum" and "buckets": [[upper bound, observations in the bucket], ...] of
// non-empty ones; null stands for numbers that are not finite (the last bucket's bound).
std::string to_json_line(const Snapshot& snapshot);

}  // namespace swarmline
