// Products of the CPU's backend against plain sums; cuda_model_test.cc compares a device with it.
#include "engine/model/linear_backend.h"

#include <array>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "engine/model/ops.h"

namespace swarmline::testing {
namespace {

const auto kF32Options = at::TensorOptions(at::kFloat);

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kCPU, at::kDouble) - b.to(at::kCPU, at::kDouble)).abs().max().item<double>();
}
double largest(const at::Tensor& a) {
  return a.to(at::kCPU, at::kDouble).abs().max().item<double>();
}

// Formats of x and w. e5m2 is of x alone, as of gradients.
class ScaledProduct : public ::testing::TestWithParam<RowFormat> {
 protected:
  ScaledProduct() { at::manual_seed(3); }
  static RowFormat of_x() { return GetParam(); }
  static RowFormat of_w() {
    return GetParam() == RowFormat::kInt8 ? RowFormat::kInt8 : RowFormat::kE4M3;
  }
};

// Sum by sum, in double: exact, but for fp8's fp32 sums.
TEST_P(ScaledProduct, IsTheSumOfTheCodesProductsTimesBothScales) {
  for (const std::int64_t k : {1, 16, 40, 300}) {
    const ScaledRows x = scaled_rows(at::randn({5, k}, kF32Options), of_x());
    const ScaledRows w = scaled_rows(at::randn({7, k}, kF32Options), of_w());
    const at::Tensor bias = at::randn({7}, kF32Options);
    const at::Tensor y = torch_linear_backend().scaled_product(x, w, bias, at::kFloat);
    for (int m = 0; m < 5; ++m) {
      for (int n = 0; n < 7; ++n) {
        double sum = 0, magnitudes = 0;
        for (int i = 0; i < k; ++i) {
          const double term = double{code_number(of_x(), x.codes[m][i].item<std::uint8_t>())} *
                              code_number(of_w(), w.codes[n][i].item<std::uint8_t>());
          sum += term;
          magnitudes += std::abs(term);
        }
        const float scale_x = x.scales[m].item<float>();
        const float scale_w = w.scales[n].item<float>();
        const float expected = static_cast<float>(sum) * scale_x * scale_w + bias[n].item<float>();
        const double bound =
            GetParam() == RowFormat::kInt8 ? 0 : 1e-6 * magnitudes * scale_x * scale_w + 1e-7;
        EXPECT_NEAR(y[m][n].item<float>(), expected, bound) << m << " " << n << " k " << k;
      }
    }
  }
}

TEST_P(ScaledProduct, IsNearTheProductOfTheMatrices) {
  const at::Tensor x = at::randn({64, 256}, kF32Options);
  const at::Tensor w = at::randn({48, 256}, kF32Options);
  const at::Tensor exact = at::mm(x, w.t());
  const at::Tensor y = torch_linear_backend().scaled_product(
      scaled_rows(x, of_x()), scaled_rows(w, of_w()), {}, at::kFloat);
  const double error = ((y - exact).norm() / exact.norm()).item<double>();
  // Of N(0,1) rows: e4m3 about 0.026, e5m2 twice that, int8 of 256 values about 0.007; of two
  // operands the root of their squares' sum.
  const double expected = GetParam() == RowFormat::kE4M3   ? 0.037
                          : GetParam() == RowFormat::kE5M2 ? 0.058
                                                           : 0.010;
  EXPECT_GT(error, 0.7 * expected);
  EXPECT_LT(error, 1.3 * expected);
}

TEST_P(ScaledProduct, ARowThatIsNotFiniteGivesARowOfNaN) {
  at::Tensor x = at::randn({3, 16}, kF32Options);
  x[1][5] = INFINITY;
  const ScaledRows w = scaled_rows(at::randn({4, 16}, kF32Options), of_w());
  const at::Tensor y =
      torch_linear_backend().scaled_product(scaled_rows(x, of_x()), w, {}, at::kFloat);
  EXPECT_TRUE(y[1].isnan().all().item<bool>());
  EXPECT_TRUE(y[0].isfinite().all().item<bool>());
  EXPECT_TRUE(y[2].isfinite().all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Formats, ScaledProduct,
                         ::testing::Values(RowFormat::kE4M3, RowFormat::kE5M2, RowFormat::kInt8),
                         [](const auto& info) {
                           if (info.param == RowFormat::kInt8) return "int8";
                           return info.param == RowFormat::kE4M3 ? "e4m3" : "e5m2";
                         });

// int8 sums beyond what fp32 holds exactly.
TEST(ScaledProductOfInt8, SumsAreExact) {
  const std::int64_t k = 40'000;
  const at::Tensor ones = at::full({1, k}, 127, kF32Options);
  at::Tensor other = ones.clone();
  other[0][0] = 126;  // 127 * 127 * k - 127 needs 30 bits
  const at::Tensor y = torch_linear_backend().scaled_product(
      scaled_rows(ones, RowFormat::kInt8), scaled_rows(other, RowFormat::kInt8), {}, at::kFloat);
  EXPECT_EQ(y.item<float>(), static_cast<float>(127.0 * 127 * k - 127));
}

// A linear layer in fp8: what it computes, its gradients, and that it notices new weights.
class Fp8Linear : public ::testing::Test {
 protected:
  Fp8Linear() {
    at::manual_seed(5);
    values_ = at::randn({32 * 16 + 32}, kF32Options);
    gradients_ = at::zeros_like(values_);
    weights_.weight = view({32, 16}, 0);
    weights_.bias = view({32}, 32 * 16);
    weights_.scaled = std::make_shared<ScaledWeight>();
  }
  Weight view(std::vector<std::int64_t> shape, std::int64_t offset) const {
    std::int64_t elements = 1;
    for (const std::int64_t extent : shape) elements *= extent;
    const at::Tensor value = values_.narrow(0, offset, elements).view(shape);
    return {value, value, static_cast<std::uint64_t>(offset)};
  }
  static at::Tensor rounded(const at::Tensor& x, RowFormat format = RowFormat::kE4M3) {
    const ScaledRows rows = scaled_rows(x, format);
    return code_numbers(rows) * rows.scales.unsqueeze(1);
  }

  at::Tensor values_, gradients_;
  LinearWeights weights_;
  GradientSink sink_;
};

TEST_F(Fp8Linear, ComputesWithRoundedOperandsAndNativeWeightGradients) {
  const at::Tensor x = at::randn({24, 16}, kF32Options).requires_grad_(true);
  const at::Tensor y = linear(x, weights_, sink_);
  const at::Tensor expected =
      at::addmm(weights_.bias.value, rounded(x.detach()), rounded(weights_.weight.value).t());
  EXPECT_LT(largest_difference(y.detach(), expected), 1e-4 * largest(expected));

  const at::Tensor g = at::randn_like(y);
  sink_.open(gradients_, 1);
  const at::Tensor dx = torch::autograd::grad({y}, {x}, {g})[0];
  sink_.close();
  const at::Tensor expected_dx =
      at::mm(rounded(g, RowFormat::kE5M2), rounded(weights_.weight.value.t()).t());
  EXPECT_LT(largest_difference(dx, expected_dx), 1e-4 * largest(expected_dx));
  const at::Tensor dw = gradients_.narrow(0, 0, 32 * 16).view({32, 16});
  EXPECT_LT(largest_difference(dw, at::mm(g.t(), x.detach())), 1e-4 * largest(dw));
  EXPECT_LT(largest_difference(gradients_.narrow(0, 32 * 16, 32), g.sum(0)), 1e-4);
}

TEST_F(Fp8Linear, ForgetsItsCodesWhenTheWeightsChange) {
  const at::Tensor x = at::randn({8, 16}, kF32Options);
  const at::Tensor before = linear(x, weights_, sink_);
  values_.mul_(2);
  weights_.scaled->forget();
  const at::Tensor after = linear(x, weights_, sink_);
  EXPECT_LT(largest_difference(after, 2 * before), 1e-4 * largest(after));
}

}  // namespace
}  // namespace swarmline::testing
