// What a peer of a stage holds, by the config; how near that is to real runs: swarm_memory_test.
#include "node/stage_memory.h"

#include <gtest/gtest.h>

#include "balancer/cut.h"
#include "node/memory_report.h"
#include "node/stage_table.h"
#include "tests/golden/golden.h"

namespace swarmline {
namespace {

RunConfig small_run() {
  RunConfig config;
  config.run.name = "small";
  config.model.layers = 4;
  config.model.d_model = 64;
  config.model.heads = 4;
  config.batch = {.batch = 32, .microbatch = 2, .sequence = 32};
  config.pipeline.stages = 2;
  config.pipeline.peers = {1, 2};
  config.pipeline.in_flight = 6;
  return config;
}

std::vector<StageHolding> holdings_of(const RunConfig& config) {
  return *stage_holdings(config, *resolve_model(config, 257));
}

TEST(StageMemory, ArenasAreThoseOfTheParameterState) {
  RunConfig config = small_run();
  for (const std::uint32_t delay : {0U, 1U}) {
    config.pipeline.delay = delay;
    for (const StageHolding& holding : holdings_of(config)) {
      const std::uint64_t arena = make_layout(*resolve_model(config, 257), holding.stage).bytes();
      EXPECT_EQ(holding.memory.parameters, (delay == 1 ? 3 : 1) * arena);
      EXPECT_EQ(holding.memory.gradients, (delay == 1 ? 3 : 2) * arena);
      EXPECT_EQ(holding.memory.optimizer, 2 * arena);
      EXPECT_EQ(holding.memory.residuals, 0U);
      EXPECT_EQ(holding.saved_bytes, 3 * arena);
      EXPECT_EQ(holding.state_bytes,
                holding.memory.parameters + holding.memory.gradients + holding.memory.optimizer);
      EXPECT_EQ(holding.needed_bytes, holding.memory.total());
    }
  }
}

TEST(StageMemory, TheOptimizersStateIsSmallerIn8Bit) {
  RunConfig config = small_run();
  const std::uint64_t fp32 = holdings_of(config)[0].memory.optimizer;
  config.optimizer.state = MomentsKind::k8Bit;
  EXPECT_LT(holdings_of(config)[0].memory.optimizer, fp32);
}

// Of the stream and of nothing else.
TEST(StageMemory, ABf16StreamKeepsAndSendsLess) {
  RunConfig config = small_run();
  config.codec = {.forward = "none", .backward = "none"};
  const std::vector<StageHolding> wide = holdings_of(config);
  config.model.stream = StreamKind::kBF16;
  const std::vector<StageHolding> narrow = holdings_of(config);
  for (std::size_t stage = 0; stage < wide.size(); ++stage) {
    EXPECT_EQ(narrow[stage].state_bytes, wide[stage].state_bytes);
    EXPECT_LT(narrow[stage].memory.activations, wide[stage].memory.activations);
    // Tokens and targets are as they were.
    EXPECT_LT(100 * narrow[stage].memory.payloads, 55 * wide[stage].memory.payloads);
    EXPECT_GT(2 * narrow[stage].memory.payloads, wide[stage].memory.payloads);
    EXPECT_LT(narrow[stage].cuda.device.activations, wide[stage].cuda.device.activations);
  }
}

TEST(StageMemory, ErrorFeedbackKeepsTwoResiduals) {
  RunConfig config = small_run();
  config.codec.error_feedback = true;
  const StageHolding holding = holdings_of(config)[0];
  EXPECT_EQ(holding.memory.residuals, 2 * holding.memory.parameters);
}

// Of three peers at least: of two on one machine nobody speaks for the other.
TEST(StageMemory, WhoSpeaksForAnIslandSumsItSomewhere) {
  for (const std::uint32_t peers : {2U, 3U}) {
    RunConfig config = small_run();
    config.pipeline.peers.assign(config.pipeline.peers.size(), peers);
    const PeerMemory without = holdings_of(config)[0].memory;
    config.net.islands = Islands::kHost;
    EXPECT_EQ(holdings_of(config)[0].memory.averaging,
              without.averaging + (peers == 3 ? without.parameters : 0));
  }
}

TEST(UnderWay, ByTheOrderAndTheShareOfThePeers) {
  RunConfig config = small_run();
  const auto at = [&](std::uint32_t stage) {
    return under_way_at(config, holdings_of(config)[stage].stage);
  };
  EXPECT_EQ(at(0).microbatches, 6U);
  EXPECT_EQ(at(0).graphs, 6U);
  EXPECT_EQ(at(1).microbatches, 3U) << "two peers share them";
  EXPECT_EQ(at(1).graphs, 3U);
  config.pipeline.wiring = WiringKind::kStatic;
  config.pipeline.order = OrderKind::kGPipe;
  EXPECT_EQ(at(1).graphs, 3U);
  config.pipeline.order = OrderKind::k1F1B;
  EXPECT_EQ(at(0).graphs, 2U);
  EXPECT_EQ(at(1).graphs, 1U);
}

TEST(UnderWay, IsNoMoreThanAStepHas) {
  RunConfig config = small_run();
  config.pipeline.in_flight = 100;
  EXPECT_EQ(under_way_at(config, holdings_of(config)[0].stage).microbatches, 16U);
}

TEST(UnderWay, AtTheLastStageAFewWaitForTheirWeightGradients) {
  RunConfig config = small_run();
  config.pipeline.in_flight = 100;
  config.batch.batch = 2 * 100;
  const UnderWay last = under_way_at(config, holdings_of(config)[1].stage);
  EXPECT_EQ(last.microbatches, 50U);
  EXPECT_EQ(last.graphs, 4U);
  EXPECT_EQ(last.waiting, 2U) << "one is computed, and one was given to the device";
}

TEST(StageMemory, RecomputingKeepsLessAndWorksWithMore) {
  const StageHolding holding = holdings_of(small_run())[0];
  EXPECT_LT(holding.memory_recomputing.activations, holding.memory.activations);
  EXPECT_GT(holding.memory_recomputing.working, holding.memory.working);
}

TEST(StageMemory, ShadowsAreSharedOut) {
  RunConfig config = small_run();
  EXPECT_EQ(holdings_of(config)[0].memory.shadows, 0U);
  config.balance.shadows = {.count = 1};
  EXPECT_GT(holdings_of(config)[0].memory.shadows, 0U);
}

TEST(StageMemory, OnCudaTheGraphsAreSmallerAndTheHostKeepsTheSums) {
  const StageHolding holding = holdings_of(small_run())[0];
  EXPECT_LT(holding.cuda.device.activations, holding.memory.activations);
  EXPECT_EQ(holding.cuda.host.activations, 0U);
  EXPECT_EQ(holding.cuda.host.optimizer, 0U);
  RunConfig on_host = small_run();
  on_host.optimizer.state_memory = StateMemory::kHost;
  EXPECT_EQ(holdings_of(on_host)[0].cuda.device.optimizer, 0U);
  EXPECT_GT(holdings_of(on_host)[0].cuda.host.optimizer, 0U);
}

TEST(Cards, FitLeavesRoomForTheDriver) {
  EXPECT_TRUE(fits(kSpotCard, 13 * kGiB));
  EXPECT_FALSE(fits(kSpotCard, 15 * kGiB));
  for (std::size_t i = 1; i < common_cards().size(); ++i)
    EXPECT_LE(common_cards()[i - 1].bytes, common_cards()[i].bytes) << "the smallest first";
}

TEST(MemoryReport, IsOneObject) {
  const RunConfig config = small_run();
  const ModelSpec model = *resolve_model(config, 257);
  expect_golden("cli/memory.json", memory_json(config, model, *stage_holdings(config, model)));
}

TEST(MemoryReport, IsNoWiderThanATerminal) {
  const RunConfig config = small_run();
  const std::string text = memory_text(config, holdings_of(config));
  EXPECT_NE(text.find("stage 1: layers"), std::string::npos) << text;
  EXPECT_NE(text.find("it fits: RTX 3060"), std::string::npos) << text;
}

}  // namespace
}  // namespace swarmline
