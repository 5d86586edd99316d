// Lanes on CUDA: kCompute is the default stream, where libtorch computes as well.
//   Thread, errors: as kernels/lanes.h says; the calling thread has chosen the device. A thread
//                   that synchronizes has chosen it from then on: what it asks CUDA is of it.
#pragma once

#include <cuda_runtime.h>
#include <memory>

#include "kernels/lanes.h"

namespace swarmline::kernels::cuda {

Result<std::unique_ptr<Lanes>> make_lanes(int device);

}  // namespace swarmline::kernels::cuda
