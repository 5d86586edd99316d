// The kernels of int4 and h4.

#define SWARMLINE_MAKE_LAUNCHES 1
#include "kernels/cuda/quantize_launch.cuh"

namespace swarmline::kernels::cuda {

FormatLaunches int4_launches() {
  return launches<Int4>();
}
FormatLaunches h4_launches() {
  return launches<H4>();
}

}  // namespace swarmline::kernels::cuda
