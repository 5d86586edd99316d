// A coordinator that was stopped must not judge others by its own absence.
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class CoordinatorFreeze : public Protocol {
 protected:
  static void expect_nobody_lost(Swarm& swarm) {
    EXPECT_EQ(events(swarm, "peer_lost"), 0U) << history(swarm);
    EXPECT_EQ(events(swarm, "failed"), 0U) << history(swarm);
  }
};

TEST_P(CoordinatorFreeze, AFrozenCoordinatorFencesNobodyWhenItWakes) {
  for (const Duration frozen :
       {12s, 400s}) {  // longer than the silence allowed, longer than an averaging may take
    RunConfig config = run_of({2, 2});
    config.net.peer_silence_seconds = 10;
    Swarm swarm(options_for(config));
    swarm.until_started();
    // While a step is averaged: its own deadline runs too.
    ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kReduceChunk) > 0; }));
    swarm.freeze(kCoordinatorNode);
    swarm.cluster().runtime().run_for(frozen);
    swarm.thaw(kCoordinatorNode);
    expect_reference(swarm, config);
    expect_nobody_lost(swarm);
  }
}

// Nobody has anything to say but heartbeats, and the first thing it does when it wakes is to look
// who is silent.
TEST_P(CoordinatorFreeze, ItWakesWhileItsPeersCompute) {
  RunConfig config = run_of({1, 2});
  config.net.peer_silence_seconds = 10;
  SimClusterOptions options = options_for(config);
  options.peers.assign(3, {.forward = 3s, .backward = 3s});
  Swarm swarm(std::move(options));
  swarm.until_started();
  swarm.cluster().runtime().run_for(1200ms);
  swarm.freeze(kCoordinatorNode);
  swarm.cluster().runtime().run_for(12s);
  swarm.thaw(kCoordinatorNode);
  expect_reference(swarm, config);
  expect_nobody_lost(swarm);
}

// A claim is asked while the coordinator stands still for longer than a peer waits for an answer:
// it is asked again, so that no granted claim is left unused.
TEST_P(CoordinatorFreeze, AClaimOutlivesAFrozenCoordinator) {
  RunConfig config = run_of({1, 2, 1});
  config.wiring.hop_timeout_seconds = 0.5;
  Swarm swarm(options_for(config));
  swarm.until_started();
  const SimNodeId b = swarm.node(1, 0);
  bool frozen = false, asked = false;
  swarm.watch([&](SimNodeId, SimNodeId to, const Frame& frame) {
    if (!frozen && to == b && kind_of(frame) == MessageKind::kForward) {
      frozen = true;
      swarm.freeze(b);
    }
    if (kind_of(frame) == MessageKind::kClaim && !asked) {
      asked = true;
      swarm.freeze(kCoordinatorNode);
    }
  });
  ASSERT_TRUE(swarm.until([&] { return asked; }));
  swarm.cluster().runtime().run_for(45s);
  swarm.thaw(kCoordinatorNode);
  swarm.thaw(b);
  expect_reference(swarm, config);
  expect_nobody_lost(swarm);
}

// The other way round: the last peer of a stage that stands still is waited for while that costs
// less than going back without it; when it wakes later, the run goes on, and when it does not, it
// ends with a sentence.
TEST_P(CoordinatorFreeze, TheLastPeerOfAStageIsSilentForTooLong) {
  RunConfig config = run_of({1, 1});
  config.net.peer_silence_seconds = 3;
  config.net.peers_wait_seconds = 6;
  config.net.outlast_seconds = 6;  // else it would be waited for: it may live
  {
    Swarm swarm(options_for(config));
    swarm.until_committed(1);
    const SimNodeId frozen = swarm.node(1, 0);
    swarm.freeze(frozen);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "new_era") == 1; }));
    swarm.cluster().runtime().run_for(1s);
    swarm.thaw(frozen);
    swarm.finish();
    expect_equal(swarm.cluster().parameters(), reference_of(config));
  }
  Swarm swarm(options_for(config));
  swarm.until_started();
  swarm.freeze(swarm.node(1, 0));
  const RunOutcome outcome = swarm.end(30s);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.sentence.find("nothing was heard from it for 9"), std::string::npos)
      << outcome.sentence;
  EXPECT_NE(outcome.sentence.find("nobody joined it within 6 s"), std::string::npos)
      << outcome.sentence;
}

INSTANTIATE_TEST_SUITE_P(Delay, CoordinatorFreeze, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
