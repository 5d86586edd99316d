// The kernels of h8.

#define SWARMLINE_MAKE_LAUNCHES 1
#include "kernels/cuda/quantize_launch.cuh"

namespace swarmline::kernels::cuda {

FormatLaunches h8_launches() {
  return launches_with_norms<H8>();
}

}  // namespace swarmline::kernels::cuda
