// One cell of the oracle's table: which factors, its config, its reference runs, its swarm in the
// simulator. Data are synthetic, the model is tiny and really trained.
//   Bounds:  a swarm that has not ended after kVirtualLimit is a failure. Thread: one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "pipeline/reference/reference_trainer.h"
#include "sim/cluster/sim_cluster.h"
#include "tests/oracle/oracle_bound.h"

namespace swarmline::oracle {

inline constexpr std::uint32_t kVocab = 31;
inline constexpr std::uint64_t kEvalSequences = 4;
// Two summands have one sum whatever their order: no noise could be measured.
inline constexpr std::uint32_t kMicrobatchesMin = 3;
inline constexpr Duration kVirtualLimit = std::chrono::seconds(600);

// The factors of the table; the reference knows nothing of stages and peers.
struct Factors {
  std::uint32_t stages = 1;
  std::uint32_t peers = 1;  // of each stage
  std::uint32_t delay = 0;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  bool tied = true;
  bool dropout = false;
  std::string name() const;            // "S4P2Delay1LambTiedDropout"
  std::string reference_name() const;  // without stages and peers
};
// Stages x peers x delay x optimizer x embeddings x dropout.
std::vector<Factors> full_product();

RunConfig config_of(const Factors& factors, DType dtype);

// Every run of the reference that a comparison needs.
struct References {
  Trace reference;
  std::vector<Trace> permuted;     // kPermutedRuns
  double gradient_norm_least = 0;  // of all steps, before clipping
  Bound bound;                     // of the config's dtype: float64 1e-9 relative, else measured
};
using MakeSource = std::function<std::unique_ptr<MicrobatchSource>()>;
Trace run_reference_trace(const ReferenceOptions& options, const MakeSource& make_source);
References run_references(ReferenceOptions options, const MakeSource& make_source);

// Of the synthetic data; computed once a process for configs that differ in what only a swarm sees.
const References& references_of(const RunConfig& config);
Trace reference_trace(const RunConfig& config, ReferenceMutation::Kind mutation);

// Peers of speeds 1 : 1/2 : 1/3 with jitter, random delays on every frame, connections overtaking
// one another, all from `seed`.
SimClusterOptions swarm_options(const RunConfig& config, std::uint64_t seed);
// Runs to the end. A run that fails or hangs fails the test and gives an empty trace. Replicas that
// differ at the end are a CHECK.
Trace run_swarm(SimClusterOptions options);
Trace finish(SimCluster& cluster);  // the same for a swarm that was made already

// With SWARMLINE_ORACLE_REPORT set, prints how near a run came to its bound.
void report(const std::string& name, DType dtype, const Comparison& worst);

}  // namespace swarmline::oracle
