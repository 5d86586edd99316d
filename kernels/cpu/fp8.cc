// CPU kernels of both fp8 formats.

#include "kernels/cpu/quant_block.h"
#include "kernels/cpu/quant_kernels.h"

namespace swarmline::kernels {

const QuantKernels kE4M3Kernels = {
    .quantize = quantize_blocks<Fp8Format<E4M3>>,
    .dequantize = dequantize_blocks<Fp8Format<E4M3>>,
};
const QuantKernels kE5M2Kernels = {
    .quantize = quantize_blocks<Fp8Format<E5M2>>,
    .dequantize = dequantize_blocks<Fp8Format<E5M2>>,
};

}  // namespace swarmline::kernels
