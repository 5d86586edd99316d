// The body of a CUDA kernel, run on the host team by team.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cuda/team.cuh"

namespace swarmline::testing {

// `stride`: the order of a team's threads (team.cuh).
template <typename Body>
void run_teams(const typename Body::Args& args, std::uint64_t turns, unsigned threads,
               unsigned stride) {
  const kernels::cuda::Team team(threads, stride);
  for (std::uint64_t turn = 0; turn < turns; ++turn) {
    typename Body::Shared shared;
    std::memset(&shared, 0xFF, sizeof shared);  // as undefined as on a device, and loud
    Body::run(team, shared, args, turn);
  }
}

}  // namespace swarmline::testing
