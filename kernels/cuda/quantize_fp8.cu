// The kernels of fp8, e4m3 and e5m2.

#define SWARMLINE_MAKE_LAUNCHES 1
#include "kernels/cuda/quantize_launch.cuh"

namespace swarmline::kernels::cuda {

FormatLaunches e4m3_launches() {
  return launches_with_norms<Fp8E4M3>();
}
FormatLaunches e5m2_launches() {
  return launches<Fp8E5M2>();
}

}  // namespace swarmline::kernels::cuda
