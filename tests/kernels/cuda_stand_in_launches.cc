// Launches over a stand-in for CUDA (cuda_stand_in.h), team by team: the kernels that are written
// over Team, and the host code that launches them, as they are.

#include <gtest/gtest.h>

#include "kernels/cuda/halves.cu"
#include "kernels/cuda/optimizer.cu"
#include "kernels/cuda/pairs.cu"
#include "kernels/cuda/sum_of_squares.cu"
#include "kernels/cuda/xxh3.cu"
#include "tests/kernels/cuda_stand_in.h"
#include "tests/kernels/host_places.h"

namespace swarmline::kernels::cuda {

cudaError_t queue(HostLaunch launch) {
  EXPECT_TRUE(launch.threads > 0 && launch.threads <= kTeamThreads &&
              launch.threads % xxh3::kLanes == 0 && launch.teams <= kTeamsMax);
  const cudaStream_t stream = launch.stream;
  const std::vector<const void*> places = std::move(launch.places);
  return testing::queue_kernel(stream, places, [made = std::move(launch)] {
    // No order of teams is a device's: not that which comes first to mind.
    for (unsigned left = made.teams; left > 0; --left) {
      blockIdx = {.x = left - 1, .threads = made.threads};
      made.team();
    }
    blockIdx = {};
  });
}

}  // namespace swarmline::kernels::cuda
