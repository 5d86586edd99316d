// The kernels of lin8.

#define SWARMLINE_MAKE_LAUNCHES 1
#include "kernels/cuda/quantize_launch.cuh"

namespace swarmline::kernels::cuda {

FormatLaunches lin8_launches() {
  return launches_with_norms<Lin8>();
}

}  // namespace swarmline::kernels::cuda
