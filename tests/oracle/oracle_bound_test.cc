// The yardstick itself: what is noise, what is allowed, what is seen.
#include "tests/oracle/oracle_bound.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace swarmline::oracle {
namespace {

constexpr const char* kWeight = "layers.0.mlp.up.weight";
constexpr const char* kKeyBias = "layers.0.attention.k.bias";

Trace trace_of(std::vector<double> weight, std::vector<double> key_bias, double loss) {
  return {.dtype = DType::kF64,
          .losses = {2.5, loss},
          .eval_loss = 3,
          .tensors = {{kWeight, std::move(weight)}, {kKeyBias, std::move(key_bias)}}};
}

const ModelSection kLearned;

TEST(OracleBound, IsFourTimesTheLargestDifferenceOfAnyTwoRuns) {
  const Trace reference = trace_of({1, -2}, {0, 1e-12}, 2);
  const std::vector<Trace> permuted = {trace_of({1 + 1e-3, -2}, {3e-12, 1e-12}, 2.01),
                                       trace_of({1 - 5e-3, -2}, {0, 2e-12}, 1.98)};
  const Bound bound = measured_bound(kLearned, reference, permuted);
  EXPECT_NEAR(bound.tensors.at(kWeight), 4 * 6e-3, 1e-12);
  EXPECT_NEAR(bound.tensors.at(kKeyBias), 1.2e-11, 1e-20);
  EXPECT_NEAR(bound.losses.at(1), 4 * 0.03, 1e-12);
}

TEST(OracleBound, WithoutNoiseAnUlpOfThePeakAStepIsAllowed) {
  const Trace reference = trace_of({1, -2}, {0, 1e-12}, 2);
  const std::vector<Trace> permuted = {reference};
  const double ulp64 = std::numeric_limits<double>::epsilon();
  const Bound bound = measured_bound(kLearned, reference, permuted);
  EXPECT_EQ(bound.tensors.at(kWeight), 2 * ulp64 * 2);
  EXPECT_EQ(bound.losses.at(0), 2 * ulp64 * 2.5);
  EXPECT_EQ(bound.tensors.at(kKeyBias), 0) << "a tensor without a scale has no floor";
}

TEST(OracleBound, RelativeBoundIsAShareOfThePeakExceptWhereTheGradientIsZero) {
  const Trace reference = trace_of({1, -2}, {0, 5}, 2);
  const std::vector<Trace> permuted = {trace_of({1, -2}, {0, 5 + 1e-6}, 2)};
  const Bound bound = relative_bound(kLearned, reference, permuted, 1e-9);
  EXPECT_DOUBLE_EQ(bound.tensors.at(kWeight), 2e-9);
  EXPECT_NEAR(bound.tensors.at(kKeyBias), 4e-6, 1e-12);
  EXPECT_DOUBLE_EQ(bound.eval_loss, 3e-9);
  ModelSection rotary;
  rotary.positions = PositionKind::kRotary;  // there a key's bias has a gradient
  EXPECT_NEAR(relative_bound(rotary, reference, permuted, 1e-9).tensors.at(kKeyBias), 5e-9, 1e-20);
}

TEST(OracleBound, CompareFindsTheWorstPlace) {
  const Trace reference = trace_of({1, -2}, {0, 0}, 2);
  const std::vector<Trace> permuted = {trace_of({1, -2}, {0, 1e-12}, 2)};
  const Bound bound = relative_bound(kLearned, reference, permuted, 1e-3);
  EXPECT_EQ(compare(reference, reference, bound).ratio, 0);
  const Comparison weight = compare(reference, trace_of({1.004, -2}, {0, 1e-12}, 2), bound);
  EXPECT_NEAR(weight.ratio, 2, 1e-6);
  EXPECT_EQ(weight.where, kWeight);
  const Comparison loss = compare(reference, trace_of({1, -2}, {0, 0}, 2.02), bound);
  EXPECT_NEAR(loss.ratio, 10, 1e-6);
  EXPECT_EQ(loss.where, "loss of step 1");
  const Comparison bias = compare(reference, trace_of({1, -2}, {0, 4e-10}, 2), bound);
  EXPECT_NEAR(bias.ratio, 100, 1e-6);
  EXPECT_EQ(bias.where, kKeyBias);
}

TEST(OracleBound, WhatIsMissingOrNotANumberMissesByAnything) {
  const Trace reference = trace_of({1, -2}, {0, 0}, 2);
  const Bound bound = relative_bound(kLearned, reference, std::vector{reference}, 1e-3);
  const auto infinite = [&](const Trace& run) {
    return std::isinf(compare(reference, run, bound).ratio);
  };
  Trace run = reference;
  run.tensors.erase(kWeight);
  EXPECT_TRUE(infinite(run));
  run = reference;
  run.tensors["another"] = {1};
  EXPECT_TRUE(infinite(run));
  run = reference;
  run.tensors[kWeight].push_back(1);
  EXPECT_TRUE(infinite(run));
  run = reference;
  run.losses.pop_back();
  EXPECT_TRUE(infinite(run));
  run = reference;
  run.losses[0] = std::nan("");
  EXPECT_TRUE(infinite(run));
  run = reference;
  run.tensors[kWeight][0] = std::nan("");
  EXPECT_TRUE(infinite(run));
  run = reference;
  run.tensors[kKeyBias][0] = 1e-300;  // its bound is 0 here
  EXPECT_TRUE(infinite(run));
}

}  // namespace
}  // namespace swarmline::oracle
