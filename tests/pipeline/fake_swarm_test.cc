// A whole swarm with a model that needs no libtorch, so that the sanitizers see every line of the
// pipeline at work.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "sim/cluster/fake_stage_model.h"
#include "sim/cluster/wire_model.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/swarm_harness.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

// Half of the seeds run with models that take wire buffers, as those of CUDA devices do.
MakeModel model_of(std::uint64_t seed) {
  return seed / 2 % 2 == 0 ? MakeModel(make_fake_model) : MakeModel(make_fake_wire_model);
}

RunConfig run_of(std::vector<std::uint32_t> peers, std::uint32_t delay) {
  return small_run(std::move(peers), delay);
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
  config.pipeline.wiring = WiringKind::kStatic;
  Swarm swarm(swarm_of(config, make_fake_model));
  swarm.finish();
  EXPECT_GT(swarm.delivered(MessageKind::kRefused), 0U);
  expect_equal(swarm.cluster().parameters(), one_each(config));
}

// More of the next stage than a sender may know: whom it knows changes as others come and go.
TEST(FakeSwarm, SendersThatKnowSomeOfManyLoseNothing) {
  RunConfig config = run_of({2, 34}, 0);
  config.run.steps = 8;
  Swarm swarm(swarm_of(config, make_fake_model));
  swarm.until_started();
  const auto committed = [&](std::uint64_t steps) {
    return [&swarm, steps] { return commits_of(swarm.cluster()) >= steps; };
  };
  ASSERT_TRUE(swarm.until(committed(1)));
  swarm.kill(swarm.node(0, 0));
  ASSERT_TRUE(swarm.until(committed(2)));
  for (std::size_t replica = 1; replica < 18; ++replica) swarm.kill(swarm.node(1, replica));
  swarm.finish();
  EXPECT_EQ(swarm.cluster().outcome()->exit_code, 0);
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
      SimClusterOptions options = swarm_of(config, hooked(model_of(seed), hooks));
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

// Links between live peers break at random: each run equals the one without.
TEST(FakeSwarm, CutsAtRandomChangeNothing) {
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    RunConfig config = run_of({2, 2, 2}, seed % 2);
    config.wiring.hop_timeout_seconds = 0.2;
    SimClusterOptions options = swarm_of(config, make_fake_model);
    options.seed = seed;
    Swarm swarm(std::move(options));
    Rng rng = Rng(seed).split("cuts");
    swarm.until_started();
    for (int i = 0; i < 6 && !swarm.cluster().outcome(); ++i) {
      swarm.cluster().runtime().run_for(std::chrono::milliseconds(rng.below(60)));
      const auto a = static_cast<SimNodeId>(1 + rng.below(6)),
                 b = static_cast<SimNodeId>(1 + rng.below(6));
      if (a != b) swarm.cluster().network().cut(a, b);
    }
    swarm.finish();
    expect_equal(swarm.cluster().parameters(), one_each(config));
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

// One compute in twenty fails, never on all peers of a stage: others do it.
TEST(FakeSwarm, ComputeThatFailsHereAndThereChangesNothing) {
  const MarkExpected failed("microbatches.compute_failed");
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

// The last of a stage is lost at any moment: the run goes back to its newest checkpoint, the
// others share the stages among them, and it ends as if nothing had happened.
TEST(FakeSwarm, AStageThatIsKilledTakesTheRunBackAtAnyMoment) {
  const MarkExpected saved("era_beginning.from_checkpoint");
  std::uint64_t from_checkpoints = 0;
  for (std::uint32_t moment = 0; moment < 48; ++moment) {
    RunConfig config = run_of({2, 1, 2}, moment % 2);
    config.run.steps = 6;
    config.checkpoint.every_steps = 1 + moment % 3;
    config.model.tied_embeddings = moment % 4 < 2;
    SimClusterOptions options = swarm_of(config, model_of(moment));
    options.eval_sequences = moment % 5 == 0 ? 4 : 0;
    Swarm swarm(std::move(options));
    swarm.until_started();
    swarm.cluster().runtime().run_for(std::chrono::milliseconds(moment * 9));
    if (swarm.cluster().outcome()) break;
    swarm.kill(swarm.node(1, 0));
    swarm.finish();
    expect_equal(swarm.cluster().parameters(), one_each(config));
    if (testing::Test::HasFailure()) FAIL() << "moment " << moment;
    from_checkpoints += swarm.delivered(MessageKind::kPiece) > 0;
  }
  EXPECT_GT(from_checkpoints, 10U);
}

// Peers are killed at any moment, while each stage keeps one: the run ends with the parameters of
// the run without losses, and the same events give the same trace.
TEST(FakeSwarm, KilledPeersChangeNothing) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    RunConfig config = run_of({2, 3, 3}, seed % 2);
    config.run.steps = 6;
    config.wiring.hop_timeout_seconds = 2;
    const auto run = [&] {
      SimClusterOptions options = swarm_of(config, model_of(seed));
      options.seed = seed;
      options.eval_sequences = seed % 3 == 0 ? 4 : 0;
      options.link.jitter = seed % 5 == 0 ? 2ms : 0ms;
      auto swarm = std::make_unique<Swarm>(std::move(options));
      Rng rng = Rng(seed).split("kills");
      swarm->until_started();
      std::vector<SimNodeId> victims;
      for (std::uint16_t stage = 0; stage < 3; ++stage)
        for (std::size_t replica = 1; replica < config.pipeline.peers[stage]; ++replica)
          victims.push_back(swarm->node(stage, replica));
      for (const SimNodeId victim : victims) {
        if (rng.below(4) == 0) continue;
        swarm->cluster().runtime().run_for(std::chrono::microseconds(rng.below(120'000)));
        if (swarm->cluster().outcome()) break;
        swarm->cluster().network().kill(victim);
      }
      swarm->finish();
      return swarm;
    };
    const auto swarm = run();
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
    expect_equal(swarm->cluster().parameters(), one_each(config));
    if (seed % 10 == 0) EXPECT_EQ(run()->cluster().trace_hash(), swarm->cluster().trace_hash());
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

// A state of many pieces comes from all mates at once, and one that is lost is done without.
TEST(FakeSwarm, AJoinerFetchesFromAllItsMatesAtOnce) {
  RunConfig config = run_of({3, 3}, 0);
  config.model.d_model = 128;
  config.run.steps = 12;
  SimClusterOptions options = swarm_of(config, make_fake_model);
  options.link.bytes_per_second = 1e9;
  Swarm swarm(std::move(options));
  swarm.until_committed(1);
  const SimNodeId joiner = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
  ASSERT_TRUE(swarm.until([&] { return swarm.cluster().peer(joiner - 1).seat().peer.value > 0; }));
  const std::uint16_t stage = swarm.stage_of(joiner);
  const SimNodeId mates[] = {swarm.node(stage, 0), swarm.node(stage, 1), swarm.node(stage, 2)};
  ASSERT_TRUE(swarm.until([&] {
    return swarm.delivered(MessageKind::kPiece, mates[0], joiner) > 0 &&
           swarm.delivered(MessageKind::kPiece, mates[1], joiner) > 0 &&
           swarm.delivered(MessageKind::kPiece, mates[2], joiner) > 0;
  }));
  EXPECT_FALSE(swarm.cluster().peer(joiner - 1).serves());
  swarm.kill(mates[1]);
  ASSERT_TRUE(swarm.until([&] { return swarm.cluster().peer(joiner - 1).serves(); }));
  swarm.finish();
  expect_equal(swarm.cluster().parameters(), one_each(config));
}

// Peers come, freeze, wake, lose links and die, as the seed will have it; one of each stage stays.
TEST(FakeSwarm, ChurnChangesNothing) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    RunConfig config = run_of({2, 2, 2}, seed % 2);
    config.run.steps = 40;
    config.wiring.hop_timeout_seconds = 0.5;
    config.net.heartbeat_seconds = 0.02;
    config.net.peer_silence_seconds = 0.1;
    config.model.tied_embeddings = seed % 4 == 3;
    const auto run = [&] {
      SimClusterOptions options = swarm_of(config, model_of(seed));
      options.seed = seed;
      options.eval_sequences = seed % 3 == 0 ? 4 : 0;
      auto swarm = std::make_unique<Swarm>(std::move(options));
      Rng rng = Rng(seed).split("churn");
      swarm->until_started();
      std::set<SimNodeId> keep;
      for (std::uint16_t stage = 0; stage < 3; ++stage) keep.insert(swarm->node(stage, 0));
      SimCluster& cluster = swarm->cluster();
      for (int i = 0; i < 30 && !cluster.outcome(); ++i) {
        cluster.runtime().run_for(std::chrono::microseconds(rng.below(60'000)));
        if (cluster.outcome()) break;
        const auto node = static_cast<SimNodeId>(1 + rng.below(cluster.peers()));
        const std::uint64_t what = rng.below(10);
        if (what < 3 && cluster.peers() < 16) cluster.add_peer({});
        if (keep.contains(node) || !cluster.runtime().is_alive(node)) continue;
        if (what == 3) cluster.network().kill(node);
        if (what == 4 || what == 5) {
          swarm->freeze(node);
          cluster.runtime().run_for(std::chrono::milliseconds(rng.below(300)));
          swarm->thaw(node);
        }
        if (what == 6) cluster.network().cut(kCoordinatorNode, node);
        if (what >= 7)
          cluster.network().cut(node, static_cast<SimNodeId>(node % cluster.peers() + 1));
      }
      swarm->finish();
      return swarm;
    };
    const auto swarm = run();
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
    expect_equal(swarm->cluster().parameters(), one_each(config));
    if (seed % 10 == 0) EXPECT_EQ(run()->cluster().trace_hash(), swarm->cluster().trace_hash());
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

// Nobody is spared: whole stages go, at once and one after the other, with and without shadows,
// while new peers come. The run goes back as often as it must.
TEST(FakeSwarm, ChurnThatSparesNobodyChangesNothing) {
  std::size_t eras = 0;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    RunConfig config = run_of({2, 2, 2}, seed % 2);
    config.run.steps = 40;
    config.checkpoint.every_steps = seed % 5;
    config.wiring.hop_timeout_seconds = 0.5;
    config.net.heartbeat_seconds = 0.02;
    config.net.peer_silence_seconds = 0.1;
    config.model.tied_embeddings = seed % 4 == 3;
    config.balance.shadows = {.count = seed % 3 == 0 ? 1U : 0U};
    const auto run = [&] {
      SimClusterOptions options = swarm_of(config, model_of(seed));
      options.seed = seed;
      options.eval_sequences = seed % 3 == 0 ? 4 : 0;
      auto swarm = std::make_unique<Swarm>(std::move(options));
      Rng rng = Rng(seed).split("nobody");
      swarm->until_started();
      SimCluster& cluster = swarm->cluster();
      for (int i = 0; i < 40 && !cluster.outcome(); ++i) {
        cluster.runtime().run_for(std::chrono::microseconds(rng.below(60'000)));
        if (cluster.outcome()) break;
        std::vector<SimNodeId> alive;
        for (std::size_t p = 0; p < cluster.peers(); ++p)
          if (cluster.is_running(p)) alive.push_back(SimCluster::node_of_peer(p));
        if (alive.size() < 5) {
          cluster.add_peer({});
          continue;
        }
        const SimNodeId node = alive[rng.below(alive.size())];
        const std::uint64_t what = rng.below(10);
        if (what < 5) cluster.network().kill(node);
        if (what == 5 || what == 6) {
          swarm->freeze(node);
          cluster.runtime().run_for(std::chrono::milliseconds(rng.below(300)));
          swarm->thaw(node);
        }
        if (what == 7) cluster.network().cut(kCoordinatorNode, node);
        if (what > 7) cluster.network().cut(node, alive[rng.below(alive.size())]);
      }
      swarm->finish();
      return swarm;
    };
    const auto swarm = run();
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
    expect_equal(swarm->cluster().parameters(), one_each(config));
    for (const EventRecord& event : *swarm->cluster().journal().events(10'000))
      eras += event.kind == "new_era";
    if (seed % 8 == 0) EXPECT_EQ(run()->cluster().trace_hash(), swarm->cluster().trace_hash());
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(eras, 10U);
}

}  // namespace
}  // namespace swarmline
