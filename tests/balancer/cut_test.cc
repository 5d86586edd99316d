#include "balancer/cut.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace swarmline {
namespace {

using Layers = std::vector<std::uint32_t>;

Layers layers_of(const std::vector<StageSpec>& stages) {
  Layers layers;
  std::uint32_t next = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    EXPECT_EQ(stages[s].stage.value, s);
    EXPECT_EQ(stages[s].stages, stages.size());
    EXPECT_EQ(stages[s].first_layer, next) << "layers left out or held twice";
    layers.push_back(stages[s].last_layer - stages[s].first_layer);
    next = stages[s].last_layer;
  }
  return layers;
}

Layers cut(const ModelCosts& costs, const CutOptions& options) {
  const auto stages = cut_layers(costs, options);
  EXPECT_TRUE(stages) << stages.error().what;
  return stages ? layers_of(*stages) : Layers{};
}

ModelCosts equal_layers(std::size_t layers, double embedding = 0, double head = 0) {
  return {std::vector<double>(layers, 1.0), embedding, head};
}

double slowest(const ModelCosts& costs, const CutOptions& options,
               const std::vector<StageSpec>& stages) {
  double worst = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const double speed = options.stage_speeds.empty() ? 1 : options.stage_speeds[s];
    worst = std::max(worst, stage_flops(costs, stages[s]) / speed);
  }
  return worst;
}

TEST(CutTest, EqualLayersAreDividedEvenly) {
  EXPECT_EQ(cut(equal_layers(8), {.stages = 1}), (Layers{8}));
  EXPECT_EQ(cut(equal_layers(8), {.stages = 4}), (Layers{2, 2, 2, 2}));
  EXPECT_EQ(cut(equal_layers(8), {.stages = 8}), (Layers(8, 1)));
}

TEST(CutTest, TheHeadAndTheEmbeddingCount) {
  EXPECT_EQ(cut(equal_layers(10, 0, 2), {.stages = 4}), (Layers{3, 3, 3, 1}));
  EXPECT_EQ(cut(equal_layers(9, 1, 2), {.stages = 4}), (Layers{2, 3, 3, 1}));
}

TEST(CutTest, AHeavyHeadLeavesTheRestEven) {
  // The head alone is the slowest whatever is cut: the others still share evenly.
  EXPECT_EQ(cut(equal_layers(7, 0, 100), {.stages = 4}), (Layers{2, 2, 2, 1}));
}

TEST(CutTest, UnevenDevicesGetUnevenStages) {
  EXPECT_EQ(cut(equal_layers(7), {.stages = 3, .stage_speeds = {1, 2, 4}}), (Layers{1, 2, 4}));
}

TEST(CutTest, SharedBlocksStayTogether) {
  EXPECT_EQ(cut(equal_layers(12, 0, 1), {.stages = 2, .share_layers = 4}), (Layers{8, 4}));
  EXPECT_EQ(cut(equal_layers(12, 0, 3), {.stages = 3, .share_layers = 4}), (Layers{4, 4, 4}));
}

TEST(CutTest, AnExplicitCutIsHonoured) {
  EXPECT_EQ(cut(equal_layers(8), {.stages = 3, .layers = {1, 6, 1}}), (Layers{1, 6, 1}));
}

TEST(CutTest, StageFlopsCountTheEnds) {
  const ModelCosts costs{{1, 2, 4}, 10, 100};
  const auto stages = cut_layers(costs, {.stages = 2, .layers = {1, 2}});
  ASSERT_TRUE(stages);
  EXPECT_EQ(stage_flops(costs, stages->at(0)), 11);
  EXPECT_EQ(stage_flops(costs, stages->at(1)), 106);
}

// The least slowest stage, and among cuts that have it the least sum of squares, by trying every
// cut.
struct Brute {
  const ModelCosts& costs;
  const CutOptions& options;
  double slowest = std::numeric_limits<double>::infinity();
  double squares = std::numeric_limits<double>::infinity();

  void search(std::vector<StageSpec>& stages, std::uint32_t first) {
    const auto layers = static_cast<std::uint32_t>(costs.layer_flops.size());
    if (stages.size() == options.stages) {
      if (first == layers) take(stages);
      return;
    }
    for (std::uint32_t last = first + options.share_layers; last <= layers;
         last += options.share_layers) {
      stages.push_back(
          {StageId(static_cast<std::uint16_t>(stages.size())), options.stages, first, last});
      search(stages, last);
      stages.pop_back();
    }
  }
  void take(const std::vector<StageSpec>& stages) {
    const double worst = swarmline::slowest(costs, options, stages);
    const double sum = sum_of_squares(stages);
    if (worst > slowest * (1 + 1e-12)) return;
    if (worst < slowest * (1 - 1e-12)) squares = std::numeric_limits<double>::infinity();
    slowest = std::min(slowest, worst);
    squares = std::min(squares, sum);
  }
  double sum_of_squares(const std::vector<StageSpec>& stages) const {
    double sum = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const double speed = options.stage_speeds.empty() ? 1 : options.stage_speeds[s];
      const double time = stage_flops(costs, stages[s]) / speed;
      sum += time * time;
    }
    return sum;
  }
};

TEST(CutTest, BoundariesCountAtTheStagesBesideThem) {
  ModelCosts costs{
      .layer_flops = std::vector<double>(6, 1), .sending_flops = 2, .receiving_flops = 1};
  // The middle one of three stages has both ends of a boundary.
  EXPECT_EQ(stage_flops(costs, {StageId(0), 3, 0, 2}), 4);
  EXPECT_EQ(stage_flops(costs, {StageId(1), 3, 2, 4}), 5);
  EXPECT_EQ(stage_flops(costs, {StageId(2), 3, 4, 6}), 3);
  EXPECT_EQ(stage_flops(costs, {StageId(0), 1, 0, 6}), 6);
  const auto cut = cut_layers(costs, {.stages = 3});
  ASSERT_TRUE(cut);
  EXPECT_EQ((*cut)[1].last_layer - (*cut)[1].first_layer, 1U);
}

TEST(CutTest, NoCutHasAFasterSlowestStage) {
  Rng rng(11);
  for (int round = 0; round < 500; ++round) {
    CutOptions options;
    options.share_layers = 1 + static_cast<std::uint32_t>(rng.below(2));
    const std::size_t blocks = 1 + rng.below(8);
    options.stages = 1 + static_cast<std::uint32_t>(rng.below(std::min<std::size_t>(blocks, 5)));
    ModelCosts costs;
    // Few different costs, so that ties are common.
    for (std::size_t l = 0; l < blocks * options.share_layers; ++l) {
      costs.layer_flops.push_back(1 + static_cast<double>(rng.below(3)));
    }
    costs.embedding_flops = static_cast<double>(rng.below(4));
    costs.head_flops = static_cast<double>(rng.below(8));
    if (rng.below(2) == 0) {
      for (std::uint32_t s = 0; s < options.stages; ++s) {
        options.stage_speeds.push_back(1 + static_cast<double>(rng.below(3)));
      }
    }
    Brute brute{costs, options};
    std::vector<StageSpec> scratch;
    brute.search(scratch, 0);
    const auto stages = cut_layers(costs, options);
    ASSERT_TRUE(stages);
    layers_of(*stages);
    ASSERT_NEAR(slowest(costs, options, *stages), brute.slowest, 1e-9) << "round " << round;
    ASSERT_NEAR(brute.sum_of_squares(*stages), brute.squares, 1e-9) << "round " << round;
  }
}

TEST(CutTest, ImpossibleCutsNameTheKeyAndWhatFits) {
  const auto expect_mistake = [](const ModelCosts& costs, const CutOptions& options,
                                 const std::vector<std::string>& words) {
    const auto stages = cut_layers(costs, options);
    ASSERT_FALSE(stages);
    EXPECT_EQ(stages.error().code, ErrorCode::kUserMistake);
    for (const std::string& word : words) {
      EXPECT_NE(stages.error().what.find(word), std::string::npos) << stages.error().what;
    }
  };
  expect_mistake(equal_layers(3), {.stages = 4}, {"pipeline.stages", "3 layers", "1 to 3"});
  expect_mistake(equal_layers(3), {.stages = 0}, {"pipeline.stages"});
  expect_mistake(equal_layers(8), {.stages = 3, .share_layers = 4},
                 {"pipeline.stages", "blocks of 4", "1 to 2"});
  expect_mistake(equal_layers(8), {.stages = 3, .layers = {4, 4}},
                 {"pipeline.layers", "2 numbers", "expected 3"});
  expect_mistake(equal_layers(8), {.stages = 2, .layers = {4, 5}},
                 {"pipeline.layers", "adding up to 9", "adding up to 8"});
  expect_mistake(equal_layers(8), {.stages = 2, .layers = {8, 0}},
                 {"pipeline.layers", "0 layers", "at least 1"});
  expect_mistake(equal_layers(8), {.stages = 2, .share_layers = 2, .layers = {3, 5}},
                 {"pipeline.layers", "3 layers", "multiple of 2"});
}

}  // namespace
}  // namespace swarmline
