// The kernels of dyn8.

#define SWARMLINE_MAKE_LAUNCHES 1
#include "kernels/cuda/quantize_launch.cuh"

namespace swarmline::kernels::cuda {

FormatLaunches dyn8_launches() {
  return launches_with_norms<Dyn8<true>>();
}
FormatLaunches dyn8_unsigned_launches() {
  return launches<Dyn8<false>>();
}

}  // namespace swarmline::kernels::cuda
