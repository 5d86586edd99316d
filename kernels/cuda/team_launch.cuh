// Launches of bodies that are written over Team.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>

#include "kernels/cuda/team.cuh"

namespace swarmline::kernels::cuda {

inline constexpr std::uint64_t kTeamsMax = 0x7FFFFFFF;  // of one launch

// Teams a multiprocessor should have room for, which bounds their registers; 0: as it comes. A
// quantizer waits for its values before it has anything to do, so that others have to load.
template <typename Body>
constexpr unsigned teams_wanted() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return Body::kManyTeams ? 6 : 0;
#else
  return 0;
#endif
}

template <typename Body>
__global__ void __launch_bounds__(kTeamThreads, teams_wanted<Body>())
    team_kernel(const __grid_constant__ typename Body::Args args, std::uint64_t first) {
  __shared__ typename Body::Shared shared;
  Body::run(Team(), shared, args, first + blockIdx.x);
}
// A team for each turn.
template <typename Body>
cudaError_t launch_turns(const typename Body::Args& args, std::uint64_t turns, unsigned threads,
                         cudaStream_t stream) {
  for (std::uint64_t first = 0; first < turns; first += kTeamsMax) {
    const auto teams = static_cast<unsigned>(std::min(turns - first, kTeamsMax));
    team_kernel<Body><<<teams, threads, 0, stream>>>(args, first);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace swarmline::kernels::cuda
