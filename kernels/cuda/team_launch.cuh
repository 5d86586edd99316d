// Launches of bodies that are written over Team; on the host, whoever stands in for a device runs
// them (tests/kernels/cuda_stand_in_launches.cc), so that what a launch is given is tested, too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>

#include "kernels/cuda/team.cuh"

#if !defined(__CUDACC__)
#include <functional>
#include <utility>
#include <vector>
#if !defined(__launch_bounds__)
#define __launch_bounds__(...)
#endif
#endif

namespace swarmline::kernels::cuda {

inline constexpr std::uint64_t kTeamsMax = 0x7FFFFFFF;  // of one launch

#if defined(__CUDACC__)

// Queues a kernel for so many teams; for none, nothing.
template <typename... Parameters, typename... Args>
cudaError_t launch(void (*kernel)(Parameters...), unsigned teams, unsigned threads,
                   cudaStream_t stream, const Args&... args) {
  if (teams == 0) return cudaSuccess;
  kernel<<<teams, threads, 0, stream>>>(args...);
  return cudaGetLastError();
}

#else

// `team` runs the team that blockIdx says; `places` are those that the kernel was given.
struct HostLaunch {
  unsigned teams = 0;
  unsigned threads = 0;
  cudaStream_t stream = nullptr;
  std::vector<const void*> places;
  std::function<void()> team;
};
cudaError_t queue(HostLaunch launch);
// Of what is given: a pointer, or what has some and says which.
template <typename T>
struct HostPlaces {
  static void add(const T&, std::vector<const void*>&) {}
};
template <typename T>
struct HostPlaces<T*> {
  static void add(const T* at, std::vector<const void*>& places) { places.push_back(at); }
};

template <typename... Parameters, typename... Args>
cudaError_t launch(void (*kernel)(Parameters...), unsigned teams, unsigned threads,
                   cudaStream_t stream, const Args&... args) {
  if (teams == 0) return cudaSuccess;
  HostLaunch made{.teams = teams,
                  .threads = threads,
                  .stream = stream,
                  .places = {},
                  .team = [kernel, args...] { kernel(args...); }};
  (HostPlaces<Args>::add(args, made.places), ...);
  return queue(std::move(made));
}

#endif

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
    const cudaError_t error = launch(team_kernel<Body>, teams, threads, stream, args, first);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace swarmline::kernels::cuda
