// Shadows with the real model: what a stage loses is only the open step's work, and the bits that a
// shadow steps to in host memory are those of its members.
#include "tests/harness/mark_expected.h"
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class Shadow : public Protocol {
 protected:
  RunConfig shadowed(std::vector<std::uint32_t> peers) const {
    RunConfig config = run_of(std::move(peers));
    config.run.steps = 8;
    config.balance.shadows = {.count = 1};
    return config;
  }
  // The one peer of stage 1 has a shadow: this is its host, of the two of stage 0; that is the
  // other one.
  struct Pair {
    SimNodeId host = 0, mate = 0;
  };
  static Pair pair_of_stage_0(Swarm& swarm) {
    EXPECT_TRUE(swarm.until([&] { return events(swarm, "shadow_ready", "of stage 1") == 1; }));
    const Seat host = swarm.cluster().coordinator().shadow_hosts(StageId{1}).at(0);
    Pair pair;
    for (std::size_t replica = 0; replica < 2; ++replica) {
      const SimNodeId node = swarm.node(0, replica);
      (swarm.cluster().peer(node - 1).seat() == host ? pair.host : pair.mate) = node;
    }
    return pair;
  }
  // The next step is open, and stays so until the host's reports are let go.
  static void open_a_step(Swarm& swarm, SimNodeId host) {
    const std::uint64_t version = commits_of(swarm.cluster());
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == version + 1; }));
    swarm.hold(host, kCoordinatorNode, MessageKind::kReport);
    ASSERT_TRUE(swarm.until_delivered(MessageKind::kGradient, 1));
  }
};

// A stage emptied in mid-step can never commit, if joining waits for a commit: the shadow's host
// takes its seat inside the open step.
TEST_P(Shadow, AStageEmptiedInMidStepIsServedInsideIt) {
  for (std::uint16_t stage = 0; stage < 3; ++stage)
    twice(shadowed({2, 2, 2}), [&](Swarm& swarm) {
      ASSERT_TRUE(swarm.until([&] { return events(swarm, "shadow_ready") == 3; }));
      ASSERT_TRUE(swarm.until_delivered(MessageKind::kGradient, 5));
      const std::uint64_t version = commits_of(swarm.cluster());
      swarm.kill_stage(stage);
      ASSERT_TRUE(swarm.until([&] { return swarm.serving(stage).size() == 1; }, 1s));
      EXPECT_EQ(commits_of(swarm.cluster()), version);
      EXPECT_EQ(events(swarm, "taken_over"), 1U);
    });
}

// A member dies after reduce, before commit: it is not a lost owner. Here all of them do.
TEST_P(Shadow, AllMembersAreLostBetweenReduceAndCommit) {
  twice(shadowed({2, 2, 2}), [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "shadow_ready") == 3; }));
    const std::uint64_t version = commits_of(swarm.cluster());
    const auto committed = std::make_shared<bool>(false);
    // The instant at which the commit would be heard.
    swarm.watch([=](SimNodeId, SimNodeId, const Frame& frame) {
      *committed = *committed || (kind_of(frame) == MessageKind::kCommit &&
                                  parse<wire::Commit>(frame)->step() > version);
    });
    ASSERT_TRUE(swarm.until([&] { return *committed; }));
    const std::uint64_t durable = commits_of(swarm.cluster());
    swarm.kill_stage(1);
    ASSERT_TRUE(swarm.until([&] { return swarm.serving(1).size() == 1; }, 1s));
    EXPECT_GE(commits_of(swarm.cluster()), durable);
    EXPECT_EQ(events(swarm, "taken_over"), 1U);
  });
}

// The cloud says that a stage's only machine may be taken soon: another peer follows the stage from
// then on, though the run asked for no shadows, and takes it over when the machine is gone.
TEST_P(Shadow, AStageWhoseOnlyMachineIsAtRiskGetsOneBeforeItIsTaken) {
  RunConfig config = shadowed({2, 1, 2});
  config.balance.shadows = {.count = 0};
  twice(config, [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until_delivered(MessageKind::kGradient, 5));
    EXPECT_EQ(events(swarm, "shadow_ready"), 0U);
    swarm.cluster().peer(swarm.node(1, 0) - 1).tell_risk();
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "shadow_ready", "of stage 1") == 1; }));
    EXPECT_EQ(events(swarm, "peer_at_risk"), 1U);
    swarm.kill_stage(1);
    ASSERT_TRUE(swarm.until([&] { return swarm.serving(1).size() == 1; }, 1s));
    EXPECT_EQ(events(swarm, "taken_over"), 1U);
    EXPECT_EQ(events(swarm, "new_era"), 0U);
  });
}

// A stage dies whole; the one that follows it is the last of its own stage, to which another one is
// on its way back with a copy of it. Nobody becomes a member at a commit, since there is none.
TEST_P(Shadow, ItsHostIsTheLastOfAStageToWhichAnotherIsComingBack) {
  twice(shadowed({2, 1}), [&](Swarm& swarm) {
    const MarkExpected freed("kept_heirs.a_shadow_has_it"), kept("kept_heirs.inherited");
    const Pair pair = pair_of_stage_0(swarm);
    open_a_step(swarm, pair.host);
    swarm.cluster().network().cut(kCoordinatorNode, pair.mate);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_lost") == 1; }, 5s));
    swarm.kill_stage(1);
    swarm.release(pair.host, kCoordinatorNode);
    ASSERT_TRUE(swarm.until([&] { return swarm.serving(1).size() == 1; }, 5s)) << history(swarm);
    EXPECT_EQ(swarm.stage_of(pair.host), 1);
    ASSERT_TRUE(swarm.until([&] { return swarm.serving(0).size() == 1; }, 5s)) << history(swarm);
    EXPECT_EQ(swarm.stage_of(pair.mate), 0);
    EXPECT_EQ(events(swarm, "taken_over"), 1U);
    EXPECT_EQ(events(swarm, "new_era"), 0U);
  });
}

// ... and it has its next seat there already, when the stage dies.
TEST_P(Shadow, ItsHostIsTheLastOfAStageToWhichAnotherHasJustComeBack) {
  twice(shadowed({2, 1}), [&](Swarm& swarm) {
    const Pair pair = pair_of_stage_0(swarm);
    open_a_step(swarm, pair.host);
    swarm.cluster().network().cut(kCoordinatorNode, pair.mate);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_joined") == 4; }, 5s));
    swarm.kill_stage(1);
    swarm.release(pair.host, kCoordinatorNode);
    ASSERT_TRUE(swarm.until([&] { return swarm.serving(1).size() == 1; }, 5s)) << history(swarm);
    ASSERT_TRUE(swarm.until([&] { return swarm.serving(0).size() == 1; }, 5s)) << history(swarm);
    EXPECT_EQ(events(swarm, "new_era"), 0U);
  });
}

// ... and its process is gone: nobody waits for it.
TEST_P(Shadow, ItsHostIsTheLastOfAStageToWhichNobodyComesBack) {
  RunConfig config = shadowed({2, 1});
  config.checkpoint.every_steps = 1;
  Swarm swarm(options_for(config));
  const Pair pair = pair_of_stage_0(swarm);
  open_a_step(swarm, pair.host);
  swarm.kill(pair.mate);
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_lost") == 1; }, 5s));
  swarm.kill_stage(1);
  EXPECT_TRUE(swarm.until([&] { return events(swarm, "new_era") == 1; }, 3s)) << history(swarm);
  EXPECT_EQ(events(swarm, "taken_over"), 0U);
}

// With 8-bit moments, too.
TEST_P(Shadow, EightBitStateIsTakenOver) {
  RunConfig config = shadowed({2, 2});
  config.model.dtype = DType::kF32;
  config.optimizer.state = MomentsKind::k8Bit;
  config.model.d_model = 64;  // small tensors keep fp32 moments
  SimClusterOptions options = options_for(config);
  Swarm swarm(std::move(options));
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "shadow_ready") == 2; }));
  swarm.kill_stage(1);
  ASSERT_TRUE(swarm.until([&] { return swarm.serving(1).size() == 1; }, 1s));
  swarm.finish();
  EXPECT_EQ(events(swarm, "taken_over"), 1U);
  EXPECT_EQ(events(swarm, "shadow_demoted"), 0U);
}

INSTANTIATE_TEST_SUITE_P(Delay, Shadow, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
