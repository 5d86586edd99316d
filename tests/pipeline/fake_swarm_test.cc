// A whole swarm with a model that needs no libtorch, so that the sanitizers see every line of the
// pipeline at work.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/pipeline/fake_stage_model.h"
#include "tests/pipeline/swarm_harness.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

// The same cut with one peer a stage: no choice, no averaging.
Tensors one_each(RunConfig config) {
  std::fill(config.pipeline.peers.begin(), config.pipeline.peers.end(), 1U);
  config.wiring = {};
  config.net.admit_bytes = 0;
  Swarm swarm(swarm_of(config, make_fake_model));
  swarm.finish();
  return swarm.cluster().parameters();
}

RunConfig run_of(std::vector<std::uint32_t> peers, std::uint32_t delay) {
  RunConfig config = small_run(static_cast<std::uint32_t>(peers.size()), 1);
  config.pipeline.peers = std::move(peers);
  config.pipeline.delay = delay;
  return config;
}

TEST(FakeSwarm, LearnsSomething) {
  const RunConfig config = run_of({1, 1}, 0);
  RunConfig longer = config;
  longer.run.steps = 8;
  EXPECT_NE(one_each(config), one_each(longer));
}

TEST(FakeSwarm, ManyPeersEqualOneEach) {
  for (const std::uint32_t delay : {0U, 1U}) {
    const RunConfig config = run_of({2, 3, 2}, delay);
    SimClusterOptions options = swarm_of(config, make_fake_model);
    options.eval_sequences = 4;
    options.link = {.latency = 1ms, .jitter = 4ms, .bytes_per_second = 50e6};
    for (std::uint32_t i = 0; i < 7; ++i)
      options.peers.push_back(
          {.forward = 2ms * (1 + i % 3), .backward = 4ms * (1 + i % 3), .jitter = 0.3});
    Swarm swarm(std::move(options));
    swarm.finish();
    expect_equal(swarm.cluster().parameters(), one_each(config));
  }
}

TEST(FakeSwarm, FullPeersAndFixedRoutesEqualOneEach) {
  RunConfig config = run_of({2, 2, 1}, 1);
  config.net.admit_bytes = 1;
  config.pipeline.in_flight = 8;
  config.pipeline.wiring = "static";
  Swarm swarm(swarm_of(config, make_fake_model));
  swarm.finish();
  EXPECT_GT(swarm.delivered(MessageKind::kRefused), 0U);
  expect_equal(swarm.cluster().parameters(), one_each(config));
}

// Peers freeze and thaw all the time: resends, claims, late contributions, cancels, bans, in every
// combination that the seed makes. Nobody is lost, so every run equals the one without.
TEST(FakeSwarm, FreezesAtRandomChangeNothing) {
  for (const std::uint32_t delay : {0U, 1U}) {
    RunConfig config = run_of({2, 3, 2}, delay);
    config.wiring.hop_timeout_seconds = 0.1;
    config.run.steps = 6;
    const Tensors wanted = one_each(config);
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      std::vector<const StageModel*> models;
      ModelHooks hooks;
      hooks.made = [&](StageId, int, const StageModel& model) { models.push_back(&model); };
      SimClusterOptions options = swarm_of(config, hooked(make_fake_model, hooks));
      options.seed = seed;
      options.eval_sequences = 4;
      options.link.jitter = 2ms;
      Swarm swarm(std::move(options));
      Rng rng = Rng(seed).split("freezes");
      swarm.until_started();
      std::uint64_t again = 0;
      swarm.watch([&](SimNodeId, SimNodeId, const Frame& frame) {
        again += kind_of(frame) == MessageKind::kForward && attempt_of(frame)->attempt.value != 0;
      });
      for (int i = 0; i < 40 && !swarm.cluster().outcome(); ++i) {
        const auto node = static_cast<SimNodeId>(rng.below(swarm.cluster().peers() + 1));
        swarm.freeze(node);
        swarm.cluster().runtime().run_for(std::chrono::milliseconds(rng.below(400)));
        swarm.thaw(node);
        swarm.cluster().runtime().run_for(std::chrono::milliseconds(rng.below(30)));
      }
      swarm.finish();
      if (testing::Test::HasFailure()) FAIL() << "seed " << seed << " delay " << delay;
      for (const StageModel* model : models)
        EXPECT_EQ(model->saved_graphs(), 0U) << "seed " << seed;
      expect_equal(swarm.cluster().parameters(), wanted);
      EXPECT_GT(again, 0U) << "seed " << seed << ": nothing was sent twice";
    }
  }
}

// Links between live peers break at random: each run equals the one without, or ends with a
// sentence about the link.
TEST(FakeSwarm, CutsAtRandomEndWellOrWithASentence) {
  RunConfig config = run_of({2, 2, 2}, 0);
  config.wiring.hop_timeout_seconds = 0.2;
  const Tensors wanted = one_each(config);
  int well = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SimClusterOptions options = swarm_of(config, make_fake_model);
    options.seed = seed;
    Swarm swarm(std::move(options));
    Rng rng = Rng(seed).split("cuts");
    swarm.until_started();
    for (int i = 0; i < 3; ++i) {
      swarm.cluster().runtime().run_for(std::chrono::milliseconds(rng.below(60)));
      const auto a = static_cast<SimNodeId>(1 + rng.below(6)),
                 b = static_cast<SimNodeId>(1 + rng.below(6));
      if (a != b) swarm.cluster().network().cut(a, b);
    }
    const RunOutcome outcome = swarm.end(600s);
    if (outcome.exit_code == 0) {
      ++well;
      expect_equal(swarm.cluster().parameters(), wanted);
    } else {
      EXPECT_NE(outcome.sentence.find("link"), std::string::npos) << outcome.sentence;
    }
  }
  EXPECT_GT(well, 0);
}

// One compute in twenty fails, never on all peers of a stage: others do it.
TEST(FakeSwarm, ComputeThatFailsHereAndThereChangesNothing) {
  for (const std::uint32_t delay : {0U, 1U}) {
    const RunConfig config = run_of({2, 2, 2}, delay);
    std::uint64_t failures = 0;
    ModelHooks hooks;
    hooks.before_forward = [&](StageId stage, int replica, const AttemptId& id) -> Result<void> {
      const std::uint64_t draw =
          mix(id.microbatch.phase.step * 1000 + id.microbatch.index, stage.value);
      if (replica != static_cast<int>(draw % 2) || draw / 2 % 10 != 0) return {};
      ++failures;
      return fail(ErrorCode::kDevice, "one in twenty");
    };
    SimClusterOptions options = swarm_of(config, hooked(make_fake_model, hooks));
    options.eval_sequences = 8;
    Swarm swarm(std::move(options));
    swarm.finish();
    expect_equal(swarm.cluster().parameters(), one_each(config));
    EXPECT_GT(failures, 0U);
  }
}

TEST(FakeSwarm, KilledPeersEndTheRunAtAnyMoment) {
  for (std::uint32_t moment = 0; moment < 40; ++moment) {
    Swarm swarm(swarm_of(run_of({2, 2, 2}, moment % 2), make_fake_model));
    swarm.until_started();
    swarm.cluster().runtime().run_for(std::chrono::milliseconds(moment * 7));
    if (swarm.cluster().outcome()) break;
    swarm.cluster().network().kill(1 + moment % 6);
    const RunOutcome outcome = swarm.end(10s);
    swarm.cluster().runtime().run_for(5s);  // what is under way ends quietly
    if (outcome.exit_code != 0)
      EXPECT_NE(outcome.sentence.find("was lost"), std::string::npos) << outcome.sentence;
  }
}

}  // namespace
}  // namespace swarmline
