// Small runs for tests and fuzzers of the pipeline.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cluster/sim_cluster.h"

namespace swarmline {

using MakeModel = decltype(StagePeerOptions::make_model);

// fp64, `stages` stages of `peers` peers, 8 microbatches a step, 4 steps; every deadline but the
// hop's is far away, and everybody stays at its stage.
RunConfig small_run(std::uint32_t stages, std::uint32_t peers);
// The same with so many peers at each stage.
RunConfig small_run(std::vector<std::uint32_t> peers, std::uint32_t delay = 0);
// Links of 1 ms without jitter, so that the order of events is the test's.
SimClusterOptions swarm_of(const RunConfig& config, MakeModel make_model);

}  // namespace swarmline
