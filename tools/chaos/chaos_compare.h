// Whether a chaos run ended with the parameters of its reference.
//   Bound:   of each tensor, relative to its largest value. fp64: kFloat64Allowed. fp32: measured,
//            kNoiseFactor times the largest difference of the reference and kPermutedRuns runs of
//            it that sum microbatches in other orders, at least one ulp a step.
//   Left out: attention.k.bias without rotary positions. Softmax does not see it, its true gradient
//            is zero, and Adam makes steps of the rounding that is left.
//   Not judged: runs whose codecs round what travels.
//   Thread:  blocking; references are runs of this program as child processes.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/config/run_config.h"
#include "tools/chaos/chaos_report.h"

namespace swarmline {

inline constexpr double kFloat64Allowed = 1e-9;
inline constexpr double kNoiseFactor = 4;
inline constexpr int kPermutedRuns = 3;

struct ChaosCompareOptions {
  RunConfig config;       // of the run that was hurt
  std::string reference;  // a run folder or checkpoint; empty: NAME-reference, made when missing
};
Result<ChaosComparison> compare_with_reference(const ChaosCompareOptions& options);

}  // namespace swarmline
