// CPU kernels of int4 and h4.

#include "kernels/cpu/quant_block.h"
#include "kernels/cpu/quant_kernels.h"

namespace swarmline::kernels {

const QuantKernels kInt4Kernels = {
    .quantize = quantize_blocks<Int4Format>,
    .dequantize = dequantize_blocks<Int4Format>,
};
const QuantKernels kH4Kernels = {
    .quantize = quantize_blocks<H4Format>,
    .dequantize = dequantize_blocks<H4Format>,
};

}  // namespace swarmline::kernels
