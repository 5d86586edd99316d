// CPU kernels of h8.

#include "kernels/cpu/quant_block.h"
#include "kernels/cpu/quant_kernels.h"

namespace swarmline::kernels {

const QuantKernels kH8Kernels = {
    .quantize = quantize_blocks<H8Format>,
    .dequantize = dequantize_blocks<H8Format>,
};

}  // namespace swarmline::kernels
