// Whole runs of other shapes than the default: each ends, and does what its keys say.
#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

// Loss of the first and of the last step.
std::pair<double, double> losses(const SwarmFolder& swarm) {
  const std::vector<JsonValue> steps = swarm.log("step");
  if (steps.empty()) return {0, 0};
  return {steps.front()["loss"].number_or(0), steps.back()["loss"].number_or(0)};
}

void expect_learns(const SwarmFolder& swarm, double nats) {
  const auto [first, last] = losses(swarm);
  EXPECT_GT(first, 5.0) << "an untrained model knows nothing of 257 symbols";
  EXPECT_LT(last, first - nats);
}

TEST(SwarmRuns, StaticWiringGivesEveryPeerTheSameMicrobatches) {
  const SwarmFolder swarm({"pipeline.wiring=static", "pipeline.peers=[1, 2]"});
  const Ended ended = swarm.launch();
  ASSERT_EQ(ended.code, 0) << ended.output << swarm.logs();
  const std::vector<JsonValue> steps = swarm.log("step");
  ASSERT_EQ(steps.size(), 6U);
  for (const JsonValue& step : steps) {
    for (const JsonValue& peer : step["peers"].items) {
      EXPECT_EQ(peer["microbatches"].count(), peer["stage"].count() == 0 ? 4U : 2U);
    }
  }
}

TEST(SwarmRuns, ADelayedUpdateLearns) {
  const SwarmFolder swarm({"pipeline.delay=1", "run.steps=12", "pipeline.peers=[2, 1]"});
  const Ended ended = swarm.launch();
  ASSERT_EQ(ended.code, 0) << ended.output << swarm.logs();
  EXPECT_EQ(swarm.log("step").size(), 12U);
  expect_learns(swarm, 0.5);
}

TEST(SwarmRuns, QuantizedActivationsAndGradientsLearn) {
  const SwarmFolder swarm({"codec.forward=h8", "codec.backward=h8", "run.steps=12"});
  const Ended ended = swarm.launch();
  ASSERT_EQ(ended.code, 0) << ended.output << swarm.logs();
  expect_learns(swarm, 0.5);
}

// Replicas send a digest of parameters and optimizer state after every step; a run whose replicas
// differ fails.
TEST(SwarmRuns, QuantizedAveragingKeepsReplicasEqual) {
  const SwarmFolder exact({"pipeline.peers=2", "codec.averaging=none"});
  ASSERT_EQ(exact.launch().code, 0) << exact.logs();
  const SwarmFolder quantized({"pipeline.peers=2", "codec.averaging=lin8"});
  ASSERT_EQ(quantized.launch().code, 0) << quantized.logs();
  expect_learns(quantized, 0.2);
  const auto bytes = [](const SwarmFolder& swarm) {
    const auto status = swarm.status();
    return status ? status->reduce_bytes : 0;
  };
  EXPECT_GT(bytes(quantized), 0U);
  EXPECT_LT(bytes(quantized), bytes(exact) / 3);
}

TEST(SwarmRuns, OneStageOfOnePeer) {
  const SwarmFolder swarm({"pipeline.stages=1"});
  const Ended ended = swarm.launch();
  ASSERT_EQ(ended.code, 0) << ended.output << swarm.logs();
  const auto status = swarm.status();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, "done");
  EXPECT_EQ(status->step, 6U);
  EXPECT_TRUE(status->boundaries.empty());
  EXPECT_EQ(status->reduce_bytes, 0U);
}

TEST(SwarmRuns, FourStagesOfTwoPeersWithEvaluations) {
  const SwarmFolder swarm({"pipeline.stages=4", "pipeline.peers=2", "eval.every_steps=2"});
  const Ended ended = swarm.launch();
  ASSERT_EQ(ended.code, 0) << ended.output << swarm.logs();
  expect_learns(swarm, 0.2);
  const std::vector<JsonValue> evals = swarm.log("eval");
  ASSERT_EQ(evals.size(), 3U);
  for (std::size_t i = 0; i < evals.size(); ++i) {
    EXPECT_EQ(evals[i]["version"].count(), 2 * (i + 1));
    EXPECT_EQ(evals[i]["sequences"].count(), 8U);
  }
  EXPECT_LT(evals[2]["loss"].number_or(100), evals[0]["loss"].number_or(0));
  const auto status = swarm.status();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->held_out_loss, evals[2]["loss"].number_or(0));
  for (const StageStatus& stage : status->stages) {
    std::uint64_t microbatches = 0;
    for (const PeerStatus& peer : stage.peers) microbatches += peer.microbatches;
    EXPECT_EQ(microbatches, 6U * 4) << "every microbatch counts once in stage " << stage.stage;
  }
  // The summary names the model, which is there.
  EXPECT_NE(ended.output.find(status->checkpoint), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(status->checkpoint + "/manifest.json"));
}

// No biases: a key's bias has no gradient, and Adam makes steps of its noise.
TEST(SwarmRuns, OneStageAndFourStagesMakeTheSameModel) {
  const std::vector<std::string> exact{"model.dtype=fp64", "model.bias=false"};
  const auto with = [&](const char* stages) {
    std::vector<std::string> overrides = exact;
    overrides.push_back(stages);
    return overrides;
  };
  const SwarmFolder one(with("pipeline.stages=1"));
  const SwarmFolder four(with("pipeline.stages=4"));
  ASSERT_EQ(one.launch().code, 0) << one.logs();
  ASSERT_EQ(four.launch().code, 0) << four.logs();
  const Ended diff = run_program(
      one.temp(), "diff", {"checkpoint", "diff", one.run().path(), four.run().path(), "--json"});
  const auto json = parse_json(diff.output);
  ASSERT_TRUE(json.has_value()) << diff.output;
  EXPECT_TRUE((*json)["same_tensors"].boolean) << diff.output;
  EXPECT_GE((*json)["tensors"].items.size(), 4U * 6);
  EXPECT_LT((*json)["max_rel_to_peak"].number_or(1), 1e-9);

  const SwarmFolder other([&] {
    std::vector<std::string> overrides = with("pipeline.stages=1");
    overrides.push_back("run.seed=2");
    return overrides;
  }());
  ASSERT_EQ(other.launch().code, 0) << other.logs();
  const Ended differs =
      run_program(one.temp(), "differs",
                  {"checkpoint", "diff", one.run().path(), other.run().path(), "--json"});
  const auto far = parse_json(differs.output);
  ASSERT_TRUE(far.has_value()) << differs.output;
  EXPECT_GT((*far)["max_rel_to_peak"].number_or(0), 1e-3) << "another seed is another model";
}

}  // namespace
}  // namespace swarmline
