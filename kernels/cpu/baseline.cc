#define SWARMLINE_KERNEL_SET baseline
#include "kernels/cpu/loops.inc"
