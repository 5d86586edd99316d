// Muon (Jordan et al. 2024) on one matrix, scaled so that AdamW's learning rate and weight decay
// suit it ("Muon is Scalable for LLM Training", Liu et al. 2025).
//   Which:   weights of the layers' products (two dimensions, "layers."): attention's q, k, v, o
//            and the MLP's gate, up, down, each a matrix of its own. AdamW steps everything else:
//            embeddings, head, learned boundaries, norms, biases.
//   Step:    m = momentum * m + g; u = g + momentum * m; u orthogonalized; p = p * keep - rate * u.
//   Orthogonalized: the quintic Newton-Schulz iteration x = a x + (b x x^T + c (x x^T)^2) x with
//            a, b, c = 3.4445, -4.7750, 2.0315, begun at u / (|u| + 1e-7), on the transposed matrix
//            where it is tall. It brings singular values near 1 (0.7 to 1.2 after 5 iterations,
//            unless they were below a thousandth of |u|), not to 1.
//   Same bits everywhere: products are those of kernels/matrix_product.h, all else is IEEE add, mul
//            and div in a fixed order.
//   Shapes:  row-major, fp32 or fp64, any alignment of an element. Buffers do not overlap.
//   Thread:  any, stateless; one thread does the work. Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/config/run_config.h"
#include "engine/model/model_spec.h"

namespace swarmline {

struct StepScalars;

// Whether Muon steps that tensor; it has a first moment alone then.
bool is_muon_matrix(const OptimizerSection& options, const ParameterSlot& slot);

// Elements of a step's scratch for a matrix, and bytes for the largest one of a layout.
std::uint64_t muon_scratch_elements(std::uint64_t rows, std::uint64_t columns);
std::uint64_t muon_scratch_bytes(const OptimizerSection& options, const ParameterLayout& layout);

struct MatrixShape {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t elements() const { return rows * columns; }
};

// Constants of one step, each computed in double and rounded once.
template <typename T>
struct MuonStep {
  T gradient_scale;  // clipping
  T momentum;
  T keep;  // 1 - learning rate * weight decay
  T rate;  // learning rate * 0.2 * sqrt(the longer side)
  std::uint32_t iterations = 0;
};
template <typename T>
MuonStep<T> muon_step(const OptimizerSection& options, const StepScalars& scalars, bool decays,
                      const MatrixShape& shape);

// `matrix` in place.
template <typename T>
void orthogonalize(T* matrix, const MatrixShape& shape, std::uint32_t iterations, T* scratch);
template <typename T>
void apply_muon(const MuonStep<T>& step, const MatrixShape& shape, const T* gradients, T* momentum,
                T* parameters, T* scratch);

}  // namespace swarmline
