// The coordinator is killed and begun again on its journal, with its peers alive.
#include "tests/pipeline/crash.h"
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class CoordinatorRestart : public Protocol {
 protected:
  // Killed before anything of that kind gets out.
  static void kill_at(Swarm& swarm, MessageKind kind) {
    Crash crash(swarm, {.kind = kind, .nth = 1, .last_through = false});
    ASSERT_TRUE(crash.happens(500ms));
  }
};

// Owners of open steps are not in the journal: the new coordinator collects them. What they had
// added counts, nothing is computed again.
TEST_P(CoordinatorRestart, OwnersOfOpenStepsAreCollected) {
  const RunConfig config = run_of({2, 2, 2});
  Swarm swarm(options_for(config));
  swarm.until_started();
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
  kill_at(swarm, MessageKind::kSeal);  // of the second step: all of it has been acknowledged
  const std::uint64_t forwards = swarm.delivered(MessageKind::kForward);
  swarm.cluster().restart_coordinator();
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
  // With a delay the step after it goes on meanwhile, as it would have.
  if (GetParam() == 0) EXPECT_EQ(swarm.delivered(MessageKind::kForward), forwards);
  expect_reference(swarm, config);
  EXPECT_EQ(events(swarm, "peer_resumed"), 6U);
  EXPECT_EQ(events(swarm, "peer_lost"), 0U);
  const std::uint64_t hops = 2;
  EXPECT_EQ(swarm.delivered(MessageKind::kForward),
            config.run.steps * config.microbatches_per_step() * hops);
}

// ... or declares the seat lost, and what only it had is computed again.
TEST_P(CoordinatorRestart, ASeatThatDoesNotAnswerIsLost) {
  const RunConfig config = run_of({1, 2, 1});
  Swarm swarm(options_for(config));
  swarm.until_started();
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
  const SimNodeId gone = swarm.node(1, 1);
  kill_at(swarm, MessageKind::kSeal);
  swarm.kill(gone);
  const std::uint64_t forwards = swarm.delivered(MessageKind::kForward);
  swarm.cluster().restart_coordinator();
  expect_reference(swarm, config);
  EXPECT_EQ(events(swarm, "peer_resumed"), 3U);
  EXPECT_EQ(events(swarm, "peer_lost", "it did not come back to the coordinator"), 1U);
  EXPECT_GT(swarm.delivered(MessageKind::kForward), forwards);
}

// A commit is durable before it is announced: killed in between, it stands, and those who did not
// hear of it hear of it from the next coordinator.
TEST_P(CoordinatorRestart, ACommitThatNobodyHeardOfStands) {
  const RunConfig config = run_of({2, 2});
  Swarm swarm(options_for(config));
  swarm.until_started();
  kill_at(swarm, MessageKind::kCommit);
  EXPECT_EQ(commits_of(swarm.cluster()), 1U);
  EXPECT_EQ(swarm.delivered(MessageKind::kCommit), 0U);
  swarm.cluster().restart_coordinator();
  ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kCommit) == 4; }));
  EXPECT_EQ(commits_of(swarm.cluster()), 1U);
  expect_reference(swarm, config);
}

// Frozen, it is followed by another; awake again it can write nothing, and its peers are gone.
TEST_P(CoordinatorRestart, ALowerTermIsIgnored) {
  RunConfig config = run_of({2, 2});
  config.net.standby = {kStandbyAddress};
  Swarm swarm(options_for(config));
  swarm.until_started();
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
  swarm.freeze(kCoordinatorNode);
  swarm.cluster().take_over();
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
  const std::uint64_t said = swarm.delivered(MessageKind::kCommit, kCoordinatorNode);
  swarm.thaw(kCoordinatorNode);
  expect_reference(swarm, config);
  EXPECT_EQ(swarm.delivered(MessageKind::kCommit, kCoordinatorNode), said);
  EXPECT_EQ(events(swarm, "peer_lost"), 0U);
}

INSTANTIATE_TEST_SUITE_P(Delay, CoordinatorRestart, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
