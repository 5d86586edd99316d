// `[pipeline] order` in whole simulated swarms: what each order allows, seen at the models, and
// that none changes what is trained.
#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "sim/cluster/fake_stage_model.h"
#include "tests/pipeline/swarm_harness.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

RunConfig run_of(OrderKind order, std::uint32_t delay) {
  RunConfig config = small_run(3, 2);
  config.batch = {.batch = 24, .microbatch = 2, .sequence = 4};  // 6 microbatches a peer
  config.pipeline.delay = delay;
  config.pipeline.order = order;
  config.pipeline.wiring = WiringKind::kStatic;
  return config;
}

// Of each (stage, replica), over all steps.
struct Watched {
  std::uint32_t running = 0, running_most = 0;      // forward begun, backward not ended
  std::map<std::uint64_t, std::uint32_t> forwards;  // by step
  std::uint32_t backwards_before_last_forward = 0;
};
using WatchedPeers = std::map<std::pair<std::uint16_t, int>, Watched>;

WatchedPeers watch(const RunConfig& config) {
  WatchedPeers peers;
  ModelHooks hooks;
  hooks.before_forward = [&](StageId stage, int replica, const AttemptId& id) -> Result<void> {
    Watched& peer = peers[{stage.value, replica}];
    peer.running_most = std::max(peer.running_most, ++peer.running);
    ++peer.forwards[id.microbatch.phase.step];
    return {};
  };
  hooks.before_backward = [&](StageId stage, int replica, const AttemptId& id) -> Result<void> {
    Watched& peer = peers[{stage.value, replica}];
    --peer.running;
    if (peer.forwards[id.microbatch.phase.step] < 6) ++peer.backwards_before_last_forward;
    return {};
  };
  SimClusterOptions options = swarm_of(config, hooked(make_fake_model, hooks));
  options.link.jitter = 3ms;
  Swarm swarm(std::move(options));
  swarm.finish();
  expect_equal(swarm.cluster().parameters(), one_each(config));
  EXPECT_EQ(peers.size(), 6U);
  for (const auto& [name, peer] : peers)
    for (const auto& [step, count] : peer.forwards) EXPECT_EQ(count, 6U) << "routes are not fixed";
  return peers;
}

TEST(Order, GPipeComputesEveryForwardBeforeABackward) {
  for (const std::uint32_t delay : {0U, 1U})
    for (const auto& [name, peer] : watch(run_of(OrderKind::kGPipe, delay))) {
      EXPECT_EQ(peer.backwards_before_last_forward, 0U) << "stage " << name.first;
      EXPECT_EQ(peer.running_most, 6U);
    }
}

TEST(Order, OneForwardOneBackwardHoldsOneForEachStageToTheLast) {
  for (const std::uint32_t delay : {0U, 1U})
    for (const auto& [name, peer] : watch(run_of(OrderKind::k1F1B, delay))) {
      EXPECT_EQ(peer.running_most, 3U - name.first);
      EXPECT_GT(peer.backwards_before_last_forward, 0U);
    }
}

TEST(Order, FreeDoesNeither) {
  std::uint32_t early = 0, beyond = 0;
  for (const auto& [name, peer] : watch(run_of(OrderKind::kFree, 0))) {
    early += peer.backwards_before_last_forward;
    beyond += peer.running_most > 3U - name.first ? 1 : 0;
  }
  EXPECT_GT(early, 0U);
  EXPECT_GT(beyond, 0U);
}

// Peers freeze, microbatches go elsewhere, links break: what is held goes on, and nothing changes.
TEST(Order, IsLiftedWhereRoutesChange) {
  for (const OrderKind order : {OrderKind::kGPipe, OrderKind::k1F1B}) {
    RunConfig config = run_of(order, 0);
    config.wiring.hop_timeout_seconds = 0.3;
    const Tensors wanted = one_each(config);
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      SimClusterOptions options = swarm_of(config, make_fake_model);
      options.seed = seed;
      Swarm swarm(std::move(options));
      Rng rng = Rng(seed).split("freezes");
      swarm.until_started();
      for (int i = 0; i < 12 && !swarm.cluster().outcome(); ++i) {
        const auto node = static_cast<SimNodeId>(1 + rng.below(swarm.cluster().peers()));
        swarm.freeze(node);
        swarm.cluster().runtime().run_for(std::chrono::milliseconds(rng.below(900)));
        swarm.thaw(node);
        swarm.cluster().runtime().run_for(std::chrono::milliseconds(rng.below(60)));
      }
      swarm.finish();
      if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
      expect_equal(swarm.cluster().parameters(), wanted);
    }
  }
}

}  // namespace
}  // namespace swarmline
