// The 8-bit steps of optimizer.h with the fp32 kernels of one instruction set, for tests that walk
// over all of them.
#pragma once

#include "kernels/cpu/table.h"

namespace swarmline::kernels {

void adamw8(const KernelTable& table, const AdamwStep<float>& step, const float* gradients,
            const Moments8& state, float* parameters, std::size_t n);
LambNorms lamb8_norms(const KernelTable& table, const LambStep<float>& step, const float* gradients,
                      const Moments8& state, const float* parameters, std::size_t n);
void lamb8_apply(const KernelTable& table, const LambStep<float>& step, float rate,
                 const float* gradients, const Moments8& state, float* parameters, std::size_t n);

}  // namespace swarmline::kernels
