// Each differentiable step against libtorch's own autograd, in float64: values, input gradient and
// weight gradients.
#include "engine/model/ops.h"

#include <functional>
#include <vector>

#include <gtest/gtest.h>

namespace swarmline::testing {
namespace {

const auto kF64Options = at::TensorOptions(at::kDouble);

// Weights laid out one after another in an arena with a gradient arena beside it.
class Weights {
 public:
  explicit Weights(std::int64_t elements)
      : values_(at::randn({elements}, kF64Options)),
        gradients_(at::zeros({elements}, kF64Options)) {}

  Weight take(std::vector<std::int64_t> shape) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : shape) elements *= extent;
    const std::int64_t offset = used_;
    used_ += elements;
    const at::Tensor value = values_.narrow(0, offset, elements).view(shape);
    return {value, value, static_cast<std::uint64_t>(offset)};
  }
  at::Tensor gradient(const Weight& weight) const {
    return gradients_.narrow(0, static_cast<std::int64_t>(weight.offset), weight.value.numel())
        .view(weight.value.sizes());
  }
  at::Tensor& gradients() { return gradients_; }

 private:
  at::Tensor values_;
  at::Tensor gradients_;
  std::int64_t used_ = 0;
};

class Ops : public ::testing::Test {
 protected:
  Ops() { at::manual_seed(1); }

  static at::Tensor variable(at::IntArrayRef shape) {
    return at::randn(shape, kF64Options).requires_grad_(true);
  }
  static at::Tensor leaf(const Weight& weight) { return weight.value.clone().requires_grad_(true); }
  static void expect_close(const at::Tensor& actual, const at::Tensor& expected, const char* what) {
    ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
    const double largest = std::max(1.0, expected.abs().max().item<double>());
    EXPECT_LT((actual - expected).abs().max().item<double>() / largest, 1e-13) << what;
    EXPECT_GT(expected.abs().max().item<double>(), 0) << what;
  }

  // Runs `ours` and `theirs` on the same input; compares values and gradients. `leaves` are what
  // theirs uses for weights.
  void compare(Weights& arena, const std::vector<Weight>& weights, const at::Tensor& x,
               const std::function<at::Tensor(const at::Tensor&)>& ours,
               const std::function<at::Tensor(const at::Tensor&)>& theirs,
               std::vector<at::Tensor> leaves) {
    const at::Tensor actual = ours(x);
    const at::Tensor expected = theirs(x);
    expect_close(actual.detach(), expected.detach(), "value");
    const at::Tensor g = at::randn_like(expected);
    sink_.open(arena.gradients(), 2.0);
    const at::Tensor dx = torch::autograd::grad({actual}, {x}, {g})[0];
    sink_.close();
    leaves.insert(leaves.begin(), x);
    const auto gradients = torch::autograd::grad({expected}, leaves, {g});
    expect_close(dx, gradients[0], "input gradient");
    for (std::size_t i = 0; i < weights.size(); ++i) {
      expect_close(arena.gradient(weights[i]), 2.0 * gradients[i + 1], "weight gradient");
    }
  }

  GradientSink sink_;
};

TEST_F(Ops, Linear) {
  for (const bool bias : {true, false}) {
    Weights arena(7 * 5 + 7);
    const LinearWeights weights{arena.take({7, 5}), bias ? arena.take({7}) : Weight{}};
    const at::Tensor w = leaf(weights.weight);
    std::vector<Weight> all = {weights.weight};
    std::vector<at::Tensor> leaves = {w};
    if (bias) {
      all.push_back(weights.bias);
      leaves.push_back(leaf(weights.bias));
    }
    compare(
        arena, all, variable({11, 5}),
        [&](const at::Tensor& x) { return linear(x, weights, sink_); },
        [&](const at::Tensor& x) { return bias ? at::linear(x, w, leaves[1]) : at::linear(x, w); },
        leaves);
  }
}

TEST_F(Ops, GeluMlp) {
  for (const bool bias : {true, false}) {
    Weights arena(2 * 8 * 5 + 8 + 5);
    const LinearWeights up{arena.take({8, 5}), bias ? arena.take({8}) : Weight{}};
    const LinearWeights down{arena.take({5, 8}), bias ? arena.take({5}) : Weight{}};
    std::vector<Weight> all = {up.weight, down.weight};
    if (bias) all.insert(all.end(), {up.bias, down.bias});
    std::vector<at::Tensor> leaves;
    for (const Weight& weight : all) leaves.push_back(leaf(weight));
    compare(
        arena, all, variable({11, 5}),
        [&](const at::Tensor& x) { return gelu_mlp(x, up, down, sink_); },
        [&](const at::Tensor& x) {
          const at::Tensor active =
              at::gelu(at::linear(x, leaves[0], bias ? leaves[2] : at::Tensor{}), "tanh");
          return at::linear(active, leaves[1], bias ? leaves[3] : at::Tensor{});
        },
        leaves);
  }
}

TEST_F(Ops, LayerNorm) {
  for (const bool bias : {true, false}) {
    Weights arena(12);
    const NormWeights weights{arena.take({6}), bias ? arena.take({6}) : Weight{}, 1e-5, false};
    std::vector<Weight> all = {weights.weight};
    std::vector<at::Tensor> leaves = {leaf(weights.weight)};
    if (bias) {
      all.push_back(weights.bias);
      leaves.push_back(leaf(weights.bias));
    }
    compare(
        arena, all, variable({9, 6}), [&](const at::Tensor& x) { return norm(x, weights, sink_); },
        [&](const at::Tensor& x) {
          return at::layer_norm(x, {6}, leaves[0], bias ? leaves[1] : at::Tensor{}, 1e-5);
        },
        leaves);
  }
}

TEST_F(Ops, RmsNorm) {
  Weights arena(6);
  const NormWeights weights{arena.take({6}), {}, 1e-3, true};
  const at::Tensor w = leaf(weights.weight);
  compare(
      arena, {weights.weight}, variable({9, 6}),
      [&](const at::Tensor& x) { return norm(x, weights, sink_); },
      [&](const at::Tensor& x) {
        return x / at::sqrt(at::mean(at::pow(x, 2), 1, true) + 1e-3) * w;
      },
      {w});
}

TEST_F(Ops, SwiGlu) {
  Weights none(1);
  compare(
      none, {}, variable({5, 8}), [](const at::Tensor& x) { return swiglu(x); },
      [](const at::Tensor& x) { return at::silu(x.slice(1, 0, 4)) * x.slice(1, 4, 8); }, {});
}

TEST_F(Ops, Maxout) {
  Weights none(1);
  for (const std::int64_t factor : {2, 4}) {
    compare(
        none, {}, variable({5, 8}), [&](const at::Tensor& x) { return maxout(x, factor); },
        [&](const at::Tensor& x) { return at::amax(x.view({5, 8 / factor, factor}), /*dim=*/2); },
        {});
  }
}

TEST_F(Ops, MaxoutsGradientGoesToTheFirstOfEquals) {
  const at::Tensor x = at::ones({2, 4}, kF64Options).requires_grad_(true);
  const at::Tensor dx = torch::autograd::grad({maxout(x, 2).sum()}, {x})[0];
  EXPECT_TRUE(dx.equal(at::tensor({1., 0., 1., 0.}).expand({2, 4})));
}

TEST_F(Ops, MaxoutHidesNoNaN) {
  const at::Tensor x = at::tensor({1., NAN, NAN, 1.}).view({2, 2});
  EXPECT_TRUE(maxout(x, 2).isnan().all().item<bool>());
}

TEST_F(Ops, DropoutMultipliesByOneMaskBothWays) {
  const DropoutMask mask{{3, 4}, 2, DropoutSite::kMlp, 0.4};
  const at::Tensor factors = dropout(at::ones({7, 9}, kF64Options), mask);
  EXPECT_GT(factors.eq(0).sum().item<std::int64_t>(), 10);
  EXPECT_GT(factors.sub(1 / 0.6).abs().lt(1e-12).sum().item<std::int64_t>(), 20);
  Weights none(1);
  compare(
      none, {}, variable({7, 9}), [&](const at::Tensor& x) { return dropout(x, mask); },
      [&](const at::Tensor& x) { return x * factors; }, {});
}

TEST_F(Ops, DropoutMaskDoesNotDependOnThreadsOrDtype) {
  const DropoutMask mask{{3, 4}, 2, DropoutSite::kMlp, 0.4};
  const at::Tensor ones = at::ones({211, 97}, kF64Options);  // enough for several threads
  const at::Tensor one = dropout(ones, mask);
  at::set_num_threads(2);
  EXPECT_TRUE(dropout(ones, mask).equal(one));
  at::set_num_threads(1);
  EXPECT_TRUE(dropout(ones.to(at::kFloat), mask).ne(0).equal(one.ne(0)));
  EXPECT_TRUE(dropout(ones.to(at::kBFloat16), mask).ne(0).equal(one.ne(0)));
}

// As complex numbers: pair (i, i + half) is multiplied by e^(i angle).
TEST_F(Ops, RotateIsAComplexProduct) {
  const at::Tensor angles = at::randn({4, 1, 3}, kF64Options);
  const at::Tensor cosines = at::cos(angles);
  const at::Tensor sines = at::sin(angles);
  Weights none(1);
  compare(
      none, {}, variable({2, 4, 5, 6}),
      [&](const at::Tensor& x) { return rotate(x, cosines, sines); },
      [&](const at::Tensor& x) {
        const at::Tensor turned = at::complex(x.slice(3, 0, 3), x.slice(3, 3, 6)) *
                                  at::polar(at::ones_like(angles), angles);
        return at::cat({at::real(turned), at::imag(turned)}, 3);
      },
      {});
}

TEST_F(Ops, CrossEntropyLeavesOutNegativeTargets) {
  const at::Tensor targets = at::tensor({3, -1, 0, 5, -100, 2}, at::kInt);
  const at::Tensor theirs = at::where(targets.ge(0), targets, -100).to(at::kLong);
  Weights none(1);
  compare(
      none, {}, variable({6, 7}),
      [&](const at::Tensor& x) { return cross_entropy_sum(x, targets); },
      [&](const at::Tensor& x) {
        return at::cross_entropy_loss(x, theirs, {}, at::Reduction::Sum, -100);
      },
      {});
}

TEST_F(Ops, RowsAreAddedInOrderAndRepeatedly) {
  Weights arena(12);
  const Weight table = arena.take({4, 3});
  const at::Tensor tokens = at::tensor({2, 0, 2, 3, 2}, at::kInt);
  const at::Tensor g = at::randn({5, 3}, kF64Options);
  sink_.open(arena.gradients(), 0.5);
  sink_.add_rows(table, tokens, g);
  sink_.close();
  at::Tensor expected = at::zeros({4, 3}, kF64Options);
  for (int n = 0; n < 5; ++n) expected[tokens[n].item<int>()] += 0.5 * g[n];
  expect_close(arena.gradient(table), expected, "rows");
}

TEST_F(Ops, AClosedSinkGetsNothing) {
  Weights arena(7 * 5 + 7);
  const LinearWeights weights{arena.take({7, 5}), arena.take({7})};
  const at::Tensor x = variable({3, 5});
  const at::Tensor y = linear(x, weights, sink_);
  const at::Tensor dx = torch::autograd::grad({y}, {x}, {at::ones_like(y)})[0];
  EXPECT_GT(dx.abs().max().item<double>(), 0);
  EXPECT_EQ(arena.gradients().abs().max().item<double>(), 0);
}

// Products in bf16, sums in the dtype of the arena, as on a CUDA device.
TEST_F(Ops, LinearInLowerPrecision) {
  Weights arena(64 * 32 + 64);
  LinearWeights weights{arena.take({64, 32}), arena.take({64})};
  at::Tensor x = variable({16, 32});
  const at::Tensor exact = linear(x, weights, sink_).detach();
  for (Weight* weight : {&weights.weight, &weights.bias}) {
    weight->compute = weight->value.to(at::kBFloat16);
  }
  const at::Tensor y = linear(x, weights, sink_);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_LT((y.detach() - exact).abs().max().item<double>(),
            0.03 * exact.abs().max().item<double>());
  sink_.open(arena.gradients(), 1);
  const at::Tensor g = at::randn_like(y);
  const at::Tensor dx = torch::autograd::grad({y}, {x}, {g})[0];
  EXPECT_EQ(dx.scalar_type(), at::kDouble);
  const at::Tensor dw = at::mm(g.to(at::kDouble).t(), x.detach());
  EXPECT_LT((arena.gradient(weights.weight) - dw).abs().max().item<double>(),
            0.03 * dw.abs().max().item<double>());
}

}  // namespace
}  // namespace swarmline::testing
