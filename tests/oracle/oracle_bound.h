// How far two trainings of one config may be apart, and how far they are.
//   Noise:     of a tensor (a step's loss, the evaluation): the largest |difference| between any
//              two of the reference and its runs with permuted summation order. It is measured for
//              each config, in the config's own dtype.
//   Bounds:    measured_bound: kNoiseFactor x noise, at least kFloorUlpsPerStep ulps of the
//              tensor's largest value a step: a step rounds each parameter once, so the least
//              difference of two sums can cost one ulp, and a few permutations may happen to round
//              alike. relative_bound: a share of the tensor's largest value.
//   Zero true gradient: softmax does not see a bias of all keys (without rotary positions), so the
//                       gradient of attention.k.bias is rounding alone, and Adam, which divides a
//                       gradient by its own size, makes steps of it. Such a tensor has no scale of
//                       its own: both kinds of bound are kNoiseFactor x its noise there, an
//                       absolute number, never a share of its values.
//   Thread:    pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "engine/config/run_config.h"
#include "engine/model/model_spec.h"

namespace swarmline::oracle {

inline constexpr double kNoiseFactor = 4;
inline constexpr double kFloorUlpsPerStep = 1;
inline constexpr int kPermutedRuns = 8;
inline constexpr double kFloat64Relative = 1e-9;
inline constexpr double kMutantRatio = 100;  // what a mutant has to miss the bound by

// What a training leaves behind, in double whatever its dtype.
struct Trace {
  DType dtype = DType::kF32;
  std::vector<double> losses;  // step after step, nats per token
  double eval_loss = 0;        // after the last step; 0: none
  std::map<std::string, std::vector<double>> tensors;
};

// Named values of an arena. `bytes` is in the layout's dtype, offsets are elements.
std::vector<double> to_doubles(BytesView bytes, DType dtype);

bool has_zero_true_gradient(const std::string& tensor, const ModelSection& model);

// One number, 0 or more, for each part of a trace.
struct PerPart {
  std::map<std::string, double> tensors;
  std::vector<double> losses;
  double eval_loss = 0;
};
using Bound = PerPart;      // allowed |difference|, absolute
using Distances = PerPart;  // largest |difference|; infinite where a part is missing on one side,
                            // of another size or not a number

Bound measured_bound(const ModelSection& model, const Trace& reference,
                     std::span<const Trace> permuted);
// `permuted` serves the tensors of zero true gradient alone.
Bound relative_bound(const ModelSection& model, const Trace& reference,
                     std::span<const Trace> permuted, double relative);

Distances distances(const Trace& reference, const Trace& run);
// `run` with that share of each tensor's elements, those furthest from the reference's, put in
// their place. Both have the same tensors.
Trace without_furthest(const Trace& reference, Trace run, double share);

// The place where a run is nearest to its bound, or furthest beyond it.
struct Comparison {
  double ratio = 0;   // difference / bound; above 1: missed
  std::string where;  // tensor, "loss of step 3", "evaluation"
  double difference = 0;
  double bound = 0;
  std::string sentence() const;
};
// Parts that only one of the two has miss by infinity.
Comparison judge(const Distances& distances, const Bound& bound);
Comparison compare(const Trace& reference, const Trace& run, const Bound& bound);

}  // namespace swarmline::oracle
