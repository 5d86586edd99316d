#define SWARMLINE_KERNEL_SET avx2
#include "kernels/cpu/loops.inc"
