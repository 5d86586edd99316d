// What libswarmline_cuda.so says of itself.
#include "kernels/cuda_build_id.h"

extern "C" {
extern const char swarmline_cuda_build_id[];
const char swarmline_cuda_build_id[] = SWARMLINE_CUDA_BUILD_ID;
}
