// Shadows with the real model: what a stage loses is only the open step's work, and the bits that a
// shadow steps to in host memory are those of its members.
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
