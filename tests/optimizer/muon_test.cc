// Muon against a plain implementation in double, and against what orthogonal means.
#include "engine/optimizer/muon.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/optimizer/saved_state.h"
#include "tests/kernels/quant_paths.h"
#include "tests/optimizer/layouts.h"

namespace swarmline {
namespace {

using testing::for_each_quant_path;
using testing::options_of;

using Matrix = std::vector<double>;

// Even in [-0.5, 0.5): no direction of such a matrix is much weaker than the others.
template <typename T>
std::vector<T> even(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<T> values(n);
  for (T& value : values) value = static_cast<T>(unit_float(rng.next_u32()) - 0.5F);
  return values;
}

Matrix multiply(const Matrix& a, const Matrix& b, std::size_t rows, std::size_t inner,
                std::size_t columns) {
  Matrix out(rows * columns, 0);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t k = 0; k < inner; ++k)
      for (std::size_t j = 0; j < columns; ++j)
        out[i * columns + j] += a[i * inner + k] * b[k * columns + j];
  return out;
}
Matrix transposed(const Matrix& a, std::size_t rows, std::size_t columns) {
  Matrix out(a.size());
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) out[j * rows + i] = a[i * columns + j];
  return out;
}

Matrix reference_orthogonalize(Matrix x, std::size_t rows, std::size_t columns,
                               std::uint32_t iterations) {
  if (rows > columns) {
    return transposed(
        reference_orthogonalize(transposed(x, rows, columns), columns, rows, iterations), columns,
        rows);
  }
  double squares = 0;
  for (const double value : x) squares += value * value;
  for (double& value : x) value /= std::sqrt(squares) + 1e-7;
  for (std::uint32_t n = 0; n < iterations; ++n) {
    const Matrix s = multiply(x, transposed(x, rows, columns), rows, columns, rows);
    Matrix polynomial = multiply(s, s, rows, rows, rows);
    for (std::size_t i = 0; i < s.size(); ++i)
      polynomial[i] = -4.7750 * s[i] + 2.0315 * polynomial[i];
    const Matrix next = multiply(polynomial, x, rows, rows, columns);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] + next[i];
  }
  return x;
}

double furthest(const Matrix& a, const Matrix& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

template <typename T>
std::vector<T> orthogonal(std::vector<T> matrix, const MatrixShape& shape,
                          std::uint32_t iterations = 5) {
  std::vector<T> scratch(muon_scratch_elements(shape.rows, shape.columns));
  orthogonalize(matrix.data(), shape, iterations, scratch.data());
  return matrix;
}
template <typename T>
Matrix to_doubles(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

const std::vector<MatrixShape> kShapes = {{1, 1},   {1, 9},   {9, 1},    {16, 16},
                                          {20, 48}, {48, 20}, {64, 256}, {130, 70}};

TEST(Orthogonalize, IsTheReference) {
  for (const MatrixShape& shape : kShapes) {
    const std::vector<float> values = even<float>(shape.elements(), 5);
    const Matrix wide = to_doubles(values);
    const Matrix expected = reference_orthogonalize(wide, shape.rows, shape.columns, 5);
    // Five iterations may enlarge a rounding error 3.4445^5 = 485 times, which the sums' own length
    // multiplies: far below these bounds for fp64, and measured 2e-5 for fp32.
    EXPECT_LT(furthest(orthogonal(wide, shape), expected), 1e-11) << shape.rows;
    EXPECT_LT(furthest(to_doubles(orthogonal(values, shape)), expected), 2e-4) << shape.rows;
  }
}

// x x^T of a wide x has eigenvalues in [0.7^2, 1.2^2], wherever the matrix has no tiny ones. They
// are bounded by the trace from below and above, and by the norm of x x^T - I.
TEST(Orthogonalize, BringsSingularValuesNearOne) {
  for (const MatrixShape& shape :
       {MatrixShape{20, 48}, MatrixShape{48, 20}, MatrixShape{32, 128}}) {
    const std::size_t side = std::min(shape.rows, shape.columns);
    const std::size_t longer = std::max(shape.rows, shape.columns);
    Matrix x = to_doubles(orthogonal(even<float>(shape.elements(), 6), shape));
    if (shape.rows > shape.columns) x = transposed(x, shape.rows, shape.columns);
    const Matrix gram = multiply(x, transposed(x, side, longer), side, longer, side);
    double trace = 0;
    for (std::size_t i = 0; i < side; ++i) {
      EXPECT_GT(gram[i * side + i], 0.4) << i;
      EXPECT_LT(gram[i * side + i], 1.5) << i;
      trace += gram[i * side + i];
      for (std::size_t j = 0; j < side; ++j) {
        if (i != j) EXPECT_LT(std::abs(gram[i * side + j]), 0.35) << i << ", " << j;
      }
    }
    EXPECT_GT(trace / static_cast<double>(side), 0.5);
    EXPECT_LT(trace / static_cast<double>(side), 1.3);
  }
}

TEST(Orthogonalize, OfZeroIsZeroAndSizeDoesNotMatter) {
  const MatrixShape shape{12, 20};
  EXPECT_EQ(orthogonal(std::vector<float>(240, 0.0F), shape), std::vector<float>(240, 0.0F));
  const std::vector<double> values = even<double>(240, 7);
  std::vector<double> large = values;
  for (double& value : large) value *= 1024;
  EXPECT_LT(furthest(orthogonal(values, shape), orthogonal(large, shape)), 1e-6);
}

// A stage's layout with what Muon steps and what it leaves to AdamW.
ParameterLayout layout_of_a_model(DType dtype = DType::kF32) {
  ModelSpec spec;
  spec.shape = {.layers = 1, .d_model = 64, .heads = 4, .dtype = dtype};
  spec.shape.kv_heads = 2;
  spec.shape.d_ff = 96;
  spec.shape.vocab = 50;
  spec.shape.tied_embeddings = false;
  spec.sequence = 8;
  return make_layout(spec, whole_model(spec, {}));
}

TEST(Muon, StepsTheMatricesOfLayersAlone) {
  const OptimizerSection options = options_of(OptimizerKind::kMuon, MomentsKind::kF32);
  const ParameterLayout layout = layout_of_a_model();
  std::vector<std::string> stepped;
  for (const ParameterSlot& slot : layout.slots)
    if (is_muon_matrix(options, slot)) stepped.push_back(slot.name);
  EXPECT_EQ(stepped,
            (std::vector<std::string>{"layers.0.attention.q.weight", "layers.0.attention.k.weight",
                                      "layers.0.attention.v.weight", "layers.0.attention.o.weight",
                                      "layers.0.mlp.up.weight", "layers.0.mlp.down.weight"}));
  EXPECT_FALSE(is_muon_matrix(options_of(OptimizerKind::kAdamW), layout.slots[2]));
}

TEST(Muon, KeepsNoSecondMomentOfItsMatrices) {
  const ParameterLayout layout = layout_of_a_model();
  const OptimizerSection options = options_of(OptimizerKind::kMuon, MomentsKind::kF32);
  std::uint64_t matrices = 0;
  for (const ParameterSlot& slot : layout.slots)
    matrices += is_muon_matrix(options, slot) ? slot.elements : 0;
  const FlatOptimizer optimizer(options, layout);
  EXPECT_LE(optimizer.state_bytes(), 2 * layout.bytes() - matrices * sizeof(float));
  const FlatOptimizer coded(options_of(OptimizerKind::kMuon, MomentsKind::k8Bit), layout);
  EXPECT_LT(coded.state_bytes(), optimizer.state_bytes());
}

TEST(Muon, SavesNoSecondMomentOfItsMatrices) {
  for (const MomentsKind kind : {MomentsKind::kF32, MomentsKind::k8Bit}) {
    RunConfig config;
    config.optimizer = options_of(OptimizerKind::kMuon, kind);
    const ParameterLayout layout = layout_of_a_model();
    const SavedState saved = saved_state(config, layout, true);
    EXPECT_EQ(saved.bytes, layout.bytes() + FlatOptimizer(config.optimizer, layout).state_bytes());
    const auto has = [&](const std::string& name) {
      return std::ranges::find(saved.tensors, name, &SavedTensor::name) != saved.tensors.end();
    };
    for (const ParameterSlot& slot : layout.slots) {
      EXPECT_TRUE(has("optimizer.m." + slot.name));
      EXPECT_EQ(has("optimizer.v." + slot.name), !is_muon_matrix(config.optimizer, slot))
          << slot.name;
    }
    for (std::size_t i = 1; i < saved.tensors.size(); ++i)
      EXPECT_GE(saved.tensors[i].at, saved.tensors[i - 1].at + saved.tensors[i - 1].bytes);
  }
}

std::vector<double> step_by_hand(const OptimizerSection& options, const ParameterLayout& layout,
                                 std::vector<double> parameters,
                                 const std::vector<std::vector<double>>& gradients) {
  std::vector<double> m(parameters.size()), v(parameters.size());
  for (std::uint64_t t = 0; t < gradients.size(); ++t) {
    const StepScalars s = step_scalars(options, t, 100, t, 2.0);
    for (const ParameterSlot& slot : layout.slots) {
      const double keep = 1 - s.learning_rate * (slot.decay ? options.weight_decay : 0);
      const auto at = [&](std::vector<double>& values) { return values.data() + slot.offset; };
      const double* const g = gradients[t].data() + slot.offset;
      if (!is_muon_matrix(options, slot)) {
        for (std::size_t i = 0; i < slot.elements; ++i) {
          const double scaled = g[i] * s.clip_scale;
          at(m)[i] = options.beta1 * at(m)[i] + (1 - options.beta1) * scaled;
          at(v)[i] = options.beta2 * at(v)[i] + (1 - options.beta2) * scaled * scaled;
          at(parameters)[i] = at(parameters)[i] * keep -
                              s.learning_rate * (at(m)[i] / s.bias_correction1) /
                                  (std::sqrt(at(v)[i] / s.bias_correction2) + options.eps);
        }
        continue;
      }
      const auto rows = static_cast<std::size_t>(slot.shape[0]);
      const auto columns = static_cast<std::size_t>(slot.shape[1]);
      Matrix update(slot.elements);
      for (std::size_t i = 0; i < slot.elements; ++i) {
        at(m)[i] = options.muon_momentum * at(m)[i] + g[i] * s.clip_scale;
        update[i] = options.muon_momentum * at(m)[i] + g[i] * s.clip_scale;
      }
      update = reference_orthogonalize(update, rows, columns, options.muon_steps);
      const double rate =
          s.learning_rate * 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
      for (std::size_t i = 0; i < slot.elements; ++i)
        at(parameters)[i] = at(parameters)[i] * keep - rate * update[i];
    }
  }
  return parameters;
}

constexpr std::uint64_t kSteps = 4;

template <typename T>
std::vector<T> drawn(const ParameterLayout& layout, std::uint64_t seed) {
  const std::vector<float> values = testing::arena(layout, seed, 0.1F);
  return {values.begin(), values.end()};
}
template <typename T>
std::vector<T> stepped(const OptimizerSection& options, const ParameterLayout& layout) {
  FlatOptimizer optimizer(options, layout);
  std::vector<T> parameters = drawn<T>(layout, 1);
  for (std::uint64_t t = 0; t < kSteps; ++t) {
    const std::vector<T> gradients = drawn<T>(layout, 10 + t);
    EXPECT_TRUE(optimizer.step(step_scalars(options, t, 100, t, 2.0),
                               std::as_bytes(std::span(gradients)),
                               std::as_writable_bytes(std::span(parameters))));
  }
  return parameters;
}
std::vector<double> stepped_by_hand(const OptimizerSection& options,
                                    const ParameterLayout& layout) {
  std::vector<std::vector<double>> gradients;
  for (std::uint64_t t = 0; t < kSteps; ++t) gradients.push_back(drawn<double>(layout, 10 + t));
  return step_by_hand(options, layout, drawn<double>(layout, 1), gradients);
}

TEST(Muon, TakesTheStepsOfThePlainImplementation) {
  const OptimizerSection options = options_of(OptimizerKind::kMuon, MomentsKind::kF32);
  const ParameterLayout narrow = layout_of_a_model(), wide = layout_of_a_model(DType::kF64);
  EXPECT_LT(furthest(stepped<double>(options, wide), stepped_by_hand(options, wide)), 1e-12);
  // Steps are 0.01 long; measured 4e-5, of numbers over many magnitudes.
  EXPECT_LT(furthest(to_doubles(stepped<float>(options, narrow)), stepped_by_hand(options, narrow)),
            2e-4);
}

TEST(Muon, CodedMomentumStaysNearTheFp32One) {
  const ParameterLayout layout = layout_of_a_model();
  const auto plain = stepped<float>(options_of(OptimizerKind::kMuon, MomentsKind::kF32), layout);
  const auto coded = stepped<float>(options_of(OptimizerKind::kMuon, MomentsKind::k8Bit), layout);
  const double apart = furthest(to_doubles(plain), to_doubles(coded));
  EXPECT_GT(apart, 0);
  EXPECT_LT(apart, 0.01);  // a step's length
}

TEST(Muon, HasTheSameBitsOnEveryInstructionSetAndFromManyThreads) {
  for (const MomentsKind state : {MomentsKind::kF32, MomentsKind::k8Bit}) {
    const OptimizerSection options = options_of(OptimizerKind::kMuon, state);
    const ParameterLayout layout = layout_of_a_model();
    const std::vector<float> expected = stepped<float>(options, layout);
    for_each_quant_path([&](const std::string& path) {
      EXPECT_EQ(stepped<float>(options, layout), expected) << path;
    });
    std::vector<std::vector<float>> results(4);
    std::vector<std::thread> threads;
    for (std::vector<float>& result : results)
      threads.emplace_back([&] { result = stepped<float>(options, layout); });
    for (std::thread& thread : threads) thread.join();
    for (const std::vector<float>& result : results) EXPECT_EQ(result, expected);
  }
}

}  // namespace
}  // namespace swarmline
