#include "engine/optimizer/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/optimizer/flat_optimizer.h"
#include "kernels/kernels.h"
#include "kernels/matrix_product.h"

namespace swarmline {
namespace {

constexpr double kLinear = 3.4445, kCubic = -4.7750, kQuintic = 2.0315;
constexpr double kNormFloor = 1e-7;
constexpr double kLikeAdamw = 0.2;  // root mean square of AdamW's updates, measured by the source

template <typename T>
void transpose(const T* from, const MatrixShape& shape, T* to) {
  constexpr std::size_t kTile = 32;  // lines of both sides stay in the first-level cache
  for (std::size_t i = 0; i < shape.rows; i += kTile) {
    for (std::size_t j = 0; j < shape.columns; j += kTile) {
      const std::size_t rows = std::min(shape.rows, i + kTile);
      const std::size_t columns = std::min(shape.columns, j + kTile);
      for (std::size_t r = i; r < rows; ++r)
        for (std::size_t c = j; c < columns; ++c)
          to[c * shape.rows + r] = from[r * shape.columns + c];
    }
  }
}

// One iteration on a wide matrix: x becomes a x + (b s + c s s) x, s = x x^T. `squares` has room
// for two square matrices.
template <typename T>
void iterate(T* x, const MatrixShape& shape, T* next, T* squares) {
  const std::size_t side = shape.rows;
  T* const s = squares;
  T* const s_squared = squares + side * side;
  kernels::product_with_transposed(x, s, side, shape.columns);
  kernels::product_with_transposed(s, s_squared, side, side);  // s is symmetric
  for (std::size_t i = 0; i < side * side; ++i)
    s[i] = static_cast<T>(kCubic) * s[i] + static_cast<T>(kQuintic) * s_squared[i];
  kernels::product(s, x, next, side, side, shape.columns);
  for (std::size_t i = 0; i < shape.elements(); ++i)
    x[i] = static_cast<T>(kLinear) * x[i] + next[i];
}

}  // namespace

bool is_muon_matrix(const OptimizerSection& options, const ParameterSlot& slot) {
  return options.kind == OptimizerKind::kMuon && slot.shape.size() == 2 &&
         slot.name.starts_with("layers.");
}

std::uint64_t muon_scratch_elements(std::uint64_t rows, std::uint64_t columns) {
  const std::uint64_t side = std::min(rows, columns);
  return 3 * rows * columns + 2 * side * side;  // update, its transposed or next one, a momentum
}

std::uint64_t muon_scratch_bytes(const OptimizerSection& options, const ParameterLayout& layout) {
  std::uint64_t most = 0;
  for (const ParameterSlot& slot : layout.slots) {
    if (!is_muon_matrix(options, slot)) continue;
    most = std::max(most, muon_scratch_elements(static_cast<std::uint64_t>(slot.shape[0]),
                                                static_cast<std::uint64_t>(slot.shape[1])));
  }
  return most * size_bytes(layout.dtype);
}

template <typename T>
MuonStep<T> muon_step(const OptimizerSection& options, const StepScalars& scalars, bool decays,
                      const MatrixShape& shape) {
  const double decay = decays ? options.weight_decay : 0.0;
  const auto longer = static_cast<double>(std::max(shape.rows, shape.columns));
  return {.gradient_scale = static_cast<T>(scalars.clip_scale),
          .momentum = static_cast<T>(options.muon_momentum),
          .keep = static_cast<T>(1 - scalars.learning_rate * decay),
          .rate = static_cast<T>(scalars.learning_rate * kLikeAdamw * std::sqrt(longer)),
          .iterations = options.muon_steps};
}

template <typename T>
void orthogonalize(T* matrix, const MatrixShape& shape, std::uint32_t iterations, T* scratch) {
  const double norm = std::sqrt(kernels::sum_of_squares(matrix, shape.elements()));
  kernels::scale(static_cast<T>(1 / (norm + kNormFloor)), matrix, shape.elements());
  const bool tall = shape.rows > shape.columns;
  const MatrixShape wide = tall ? MatrixShape{shape.columns, shape.rows} : shape;
  // A tall matrix is turned into the scratch and back; its own place is room for what comes next.
  T* x = matrix;
  T* next = scratch;
  if (tall) {
    transpose(matrix, shape, scratch);
    std::swap(x, next);
  }
  for (std::uint32_t i = 0; i < iterations; ++i) iterate(x, wide, next, scratch + shape.elements());
  if (tall) transpose(x, wide, matrix);
}

template <typename T>
void apply_muon(const MuonStep<T>& step, const MatrixShape& shape, const T* gradients, T* momentum,
                T* parameters, T* scratch) {
  T* const update = scratch;
  for (std::size_t i = 0; i < shape.elements(); ++i) {
    const T gradient = step.gradient_scale * gradients[i];
    momentum[i] = step.momentum * momentum[i] + gradient;
    update[i] = step.momentum * momentum[i] + gradient;
  }
  orthogonalize(update, shape, step.iterations, scratch + shape.elements());
  for (std::size_t i = 0; i < shape.elements(); ++i)
    parameters[i] = parameters[i] * step.keep - step.rate * update[i];
}

template MuonStep<float> muon_step(const OptimizerSection&, const StepScalars&, bool,
                                   const MatrixShape&);
template MuonStep<double> muon_step(const OptimizerSection&, const StepScalars&, bool,
                                    const MatrixShape&);
template void orthogonalize(float*, const MatrixShape&, std::uint32_t, float*);
template void orthogonalize(double*, const MatrixShape&, std::uint32_t, double*);
template void apply_muon(const MuonStep<float>&, const MatrixShape&, const float*, float*, float*,
                         float*);
template void apply_muon(const MuonStep<double>&, const MatrixShape&, const double*, double*,
                         double*, double*);

}  // namespace swarmline
