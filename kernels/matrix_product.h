// Matrix products whose bits do not depend on the machine.
//   What:   every element of a product is one chain over rising k, begun at 0:
//           sum = fma(a_ik, b_kj, sum). Blocks, vectors and the sides of a tile only change which
//           chains run at a time, so every instruction set gives the same bits. (A product of a
//           library has an order of its own on each CPU, and so cannot be a part of a step that
//           replicas make each for itself.)
//   Shapes: row-major, dense, any size >= 0, any alignment of an element. Buffers do not overlap.
//   Thread: any, stateless; one thread does the work. Allocates at most kProductScratchBytes.
//   Speed:  needs fused multiply-add of the CPU (x86-64: AVX2 and newer). Elsewhere each one is a
//           call of fma(), correct and some fifty times slower.
//   Errors: none.
#pragma once

#include <cstddef>

namespace swarmline::kernels {

inline constexpr std::size_t kProductScratchBytes = std::size_t{1} << 20;

// out (rows x columns) = a (rows x inner) * b (inner x columns).
void product(const float* a, const float* b, float* out, std::size_t rows, std::size_t inner,
             std::size_t columns);
void product(const double* a, const double* b, double* out, std::size_t rows, std::size_t inner,
             std::size_t columns);
// out (rows x rows) = a (rows x inner) * transposed a. Exactly symmetric; half of it is computed.
void product_with_transposed(const float* a, float* out, std::size_t rows, std::size_t inner);
void product_with_transposed(const double* a, double* out, std::size_t rows, std::size_t inner);

}  // namespace swarmline::kernels
