#define SWARMLINE_KERNEL_SET avx512
#include "kernels/cpu/loops.inc"
