// The quantizers over a stand-in for CUDA, as cuda_stand_in_launches.cc runs them.

#include "tests/kernels/host_places.h"

#define SWARMLINE_MAKE_LAUNCHES 1
#include "kernels/cuda/quantize.cu"
#include "kernels/cuda/quantize_dyn8.cu"
#include "kernels/cuda/quantize_fp8.cu"
#include "kernels/cuda/quantize_h8.cu"
#include "kernels/cuda/quantize_int4.cu"
#include "kernels/cuda/quantize_lin8.cu"
