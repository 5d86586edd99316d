#include "engine/collective/slices.h"

#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace swarmline {
namespace {

using Bandwidths = std::vector<double>;
using Bounds = std::vector<std::uint64_t>;

std::vector<double> weights_of(const Bandwidths& bandwidths) {
  const auto weights = water_filling(bandwidths);
  EXPECT_TRUE(weights) << weights.error().what;
  return weights.value_or(std::vector<double>(bandwidths.size(), 0));
}

// Solutions of the linear program as published with DeDLOC's code: sizes of the parts of
// `elements`.
struct Golden {
  Bandwidths bandwidths;
  std::vector<double> parts;
  double elements;
};

TEST(WaterFillingTest, CostsAreThoseOfTheLinearProgram) {
  const std::vector<Golden> golden = {
      {{.25, .25, .25, .25}, {15, 15, 15, 15}, 60},
      {{.44, .33, .22}, {42, 18, 0}, 60},
      {{.55, .44, .40}, {35, 16, 9}, 60},
      {{.3, .5, .9, .6}, {0, 169327, 602629, 276620}, 1 << 20},
      {{0, .5, 0, .6}, {0, 428963, 0, 619613}, 1 << 20},
      {{.3, .5, .9}, {0, 255, 769}, 1024},
  };
  for (const Golden& g : golden) {
    std::vector<double> parts = g.parts;
    for (double& part : parts) part /= g.elements;
    const auto weights = weights_of(g.bandwidths);
    const double cost = reduce_cost(g.bandwidths, weights);
    // The published parts are rounded to whole elements: ours may only be better, by less than two
    // elements.
    const double published = reduce_cost(g.bandwidths, parts);
    EXPECT_LE(cost, published * (1 + 1e-12));
    EXPECT_NEAR(cost, published, 2 * 2 / g.elements / 0.22);
  }
  EXPECT_NEAR(reduce_cost(golden[5].bandwidths, weights_of(golden[5].bandwidths)), 3.3333, 1e-4);
}

// Where one slow member alone sets the cost, many solutions tie; here there is one.
TEST(WaterFillingTest, PartsOfALargeVectorAreThePublishedOnes) {
  const auto partly = slice_bounds(1 << 20, weights_of({0, .5, 0, .6}), 1);
  EXPECT_EQ(partly[1], 0U);
  EXPECT_NEAR(static_cast<double>(partly[2]), 428963, 2);
  EXPECT_EQ(partly[3], partly[2]);
}

TEST(WaterFillingTest, NoOtherWeightsAreCheaper) {
  Rng rng(7);
  for (int round = 0; round < 200; ++round) {
    Bandwidths bandwidths(3 + rng.below(6));
    for (double& b : bandwidths) b = rng.below(6) == 0 ? 0 : 0.05 + rng.uniform();
    bandwidths[0] = 0.5;
    const auto weights = weights_of(bandwidths);
    ASSERT_NEAR(std::accumulate(weights.begin(), weights.end(), 0.0), 1, 1e-12);
    const double cost = reduce_cost(bandwidths, weights);
    for (int trial = 0; trial < 20; ++trial) {
      std::vector<double> other = weights;
      const std::size_t from = rng.below(other.size());
      const std::size_t to = rng.below(other.size());
      const double moved = other[from] * rng.uniform();
      if (bandwidths[to] == 0) continue;  // cannot reduce
      other[from] -= moved;
      other[to] += moved;
      ASSERT_GE(reduce_cost(bandwidths, other), cost * (1 - 1e-9));
    }
  }
}

TEST(WaterFillingTest, OneOrTwoMembersShareEvenly) {
  EXPECT_EQ(weights_of({3}), (std::vector<double>{1}));
  EXPECT_EQ(weights_of({1, 100}), (std::vector<double>{.5, .5}));
  EXPECT_EQ(weights_of({0, 100}), (std::vector<double>{0, 1}));
}

TEST(WaterFillingTest, RefusesBandwidthsThatCannotBe) {
  for (const Bandwidths& bad : {Bandwidths{0, 0, 0}, Bandwidths{1, -1, 1}, Bandwidths{},
                                Bandwidths{1, std::numeric_limits<double>::quiet_NaN(), 1},
                                Bandwidths{1, std::numeric_limits<double>::infinity(), 1}}) {
    const auto weights = water_filling(bad);
    ASSERT_FALSE(weights);
    EXPECT_EQ(weights.error().code, ErrorCode::kIncompatible);
  }
}

TEST(SliceBoundsTest, CoverEverythingOnAlignedBounds) {
  Rng rng(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<double> weights(1 + rng.below(8));
    for (double& w : weights) w = rng.below(4) == 0 ? 0 : rng.uniform();
    weights[rng.below(weights.size())] = 0.5;
    const std::uint64_t elements = rng.below(5000);
    const std::uint64_t alignment = 1 + rng.below(64);
    const Bounds bounds = slice_bounds(elements, weights, alignment);
    ASSERT_EQ(bounds.size(), weights.size() + 1);
    ASSERT_EQ(bounds.front(), 0U);
    ASSERT_EQ(bounds.back(), elements);
    double total = 0;
    for (const double w : weights) total += w;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      ASSERT_LE(bounds[i], bounds[i + 1]);
      ASSERT_TRUE(bounds[i] % alignment == 0 || bounds[i] == elements);
      const double slice = static_cast<double>(bounds[i + 1] - bounds[i]);
      if (weights[i] == 0) ASSERT_EQ(slice, 0) << "no weight, no slice";
      ASSERT_NEAR(slice, static_cast<double>(elements) * weights[i] / total,
                  static_cast<double>(alignment) + 1e-6);
    }
  }
}

TEST(SliceBoundsTest, HandMadeCases) {
  EXPECT_EQ(slice_bounds(10, std::vector<double>{1, 1}, 1), (Bounds{0, 5, 10}));
  EXPECT_EQ(slice_bounds(10, std::vector<double>{1, 1}, 4), (Bounds{0, 4, 10}));
  EXPECT_EQ(slice_bounds(10, std::vector<double>{1, 0}, 4), (Bounds{0, 10, 10}));
  EXPECT_EQ(slice_bounds(0, std::vector<double>{1, 1}, 64), (Bounds{0, 0, 0}));
  EXPECT_EQ(slice_bounds(3, std::vector<double>{1, 1}, 64), (Bounds{0, 0, 3}));
}

}  // namespace
}  // namespace swarmline
