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
  swarm.until_committed(1);
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
  swarm.until_committed(1);
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

// Claims are not answered and nobody is declared lost until all have come or been given up: what is
// tried in vain meanwhile fails nothing.
TEST_P(CoordinatorRestart, AMicrobatchThatFindsNobodyMeanwhileIsNotGivenUp) {
  RunConfig config = run_of({1, 5});
  config.wiring.hop_timeout_seconds = 0.3;
  config.net.peer_silence_seconds = 20;
  config.net.collect_seconds = 20;
  Swarm swarm(options_for(config));
  swarm.until_committed(1);
  const SimNodeId a = swarm.node(0, 0);
  std::vector<SimNodeId> gone = swarm.serving(1);
  gone.pop_back();
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kForward, 4));
  for (const SimNodeId node : gone) {
    swarm.hold(a, node);
    swarm.hold(node, kCoordinatorNode);
  }
  swarm.cluster().kill_coordinator();
  swarm.cluster().restart_coordinator();
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_resumed") == 2; }));
  for (const SimNodeId node : gone) swarm.kill(node);
  swarm.finish();
  expect_equal(swarm.cluster().parameters(), reference_of(config));
  EXPECT_EQ(events(swarm, "peer_resumed"), 2U);
}

// Newcomers have no seat that anybody waits for, and know nothing of the run: they come when a
// coordinator is there, whether it was gone before they asked or has not answered yet.
TEST_P(CoordinatorRestart, NewcomersWaitForTheNextCoordinator) {
  const RunConfig config = run_of({1, 1});
  Swarm swarm(options_for(config));
  swarm.until_committed(1);
  swarm.hold(kCoordinatorNode, SimCluster::node_of_peer(2), MessageKind::kWelcome);
  swarm.cluster().add_peer({});
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kHello, 1, SimCluster::node_of_peer(2)));
  swarm.cluster().kill_coordinator();
  swarm.cluster().add_peer({});
  swarm.cluster().runtime().run_for(5s);
  swarm.release(kCoordinatorNode, SimCluster::node_of_peer(2));
  swarm.cluster().restart_coordinator();
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_joined") == 4; })) << history(swarm);
  EXPECT_EQ(events(swarm, "peer_resumed"), 2U);
  expect_reference(swarm, config);
}

// ... and the others do not wait for it longer than a peer may be silent, where each stage has one.
TEST_P(CoordinatorRestart, OneThatIsLostHoldsUpNobody) {
  RunConfig config = run_of({1, 2, 1});
  config.net.peer_silence_seconds = 0;
  config.net.collect_seconds = 3600;
  Swarm swarm(options_for(config));
  swarm.until_committed(1);
  const SimNodeId gone = swarm.node(1, 1);
  kill_at(swarm, MessageKind::kSeal);
  swarm.cluster().network().kill(gone);
  swarm.cluster().restart_coordinator();
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }, 4s));
  expect_reference(swarm, config);
  EXPECT_EQ(events(swarm, "peer_resumed"), 3U);
  EXPECT_EQ(events(swarm, "peer_lost", "it did not come back to the coordinator"), 1U);
}

// What peers hold is gone on with: no checkpoint is read for that, which may take long.
TEST_P(CoordinatorRestart, NoCheckpointIsReadWherePeersAreThere) {
  RunConfig config = run_of({2, 2});
  config.checkpoint.every_steps = 1;
  SimClusterOptions options = options_for(config);
  options.checkpoint_read = 600s;
  Swarm swarm(std::move(options));
  swarm.until_started();
  ASSERT_TRUE(swarm.until([&] { return swarm.cluster().checkpoint().complete() == 1; }));
  kill_at(swarm, MessageKind::kSeal);
  const std::uint64_t commits = commits_of(swarm.cluster());
  swarm.cluster().restart_coordinator();
  EXPECT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) > commits; }, 5s));
  expect_reference(swarm, config);
  EXPECT_EQ(events(swarm, "peer_lost"), 0U);
}

// It has had a seat since that the others never heard of: with that one the older is over, too, and
// nobody is sent anything there any more.
TEST_P(CoordinatorRestart, OneThatIsLostWithASeatThatNobodyHeardOf) {
  RunConfig config = run_of({1, 2});
  config.run.steps = 6;
  const auto scenario = [](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
    const SimNodeId source = swarm.node(0, 0);
    const auto forward = [&](SimNodeId node) { return swarm.cluster().machine(node - 1).forward; };
    // The faster one: a try that the step waits for would always go there.
    const SimNodeId gone = std::min(swarm.node(1, 0), swarm.node(1, 1),
                                    [&](auto a, auto b) { return forward(a) < forward(b); });
    swarm.hold(kCoordinatorNode, source, MessageKind::kPeerLost);
    swarm.cluster().network().cut(kCoordinatorNode, gone);
    ASSERT_TRUE(
        swarm.until([&] { return swarm.cluster().peer(gone - 1).seat().incarnation.value == 2; }));
    swarm.kill(gone);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_lost") == 2; }));
    swarm.cluster().kill_coordinator();
    swarm.cluster().restart_coordinator();
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_resumed") == 2; }));
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 4; }, 10s));
  };
  twice(config,
        on({{.forward = 2ms, .backward = 4ms},
            {.forward = 1ms, .backward = 2ms},
            {.forward = 4ms, .backward = 8ms}}),
        scenario);
}

// It asks while the others are collected, and its link breaks before it is answered: it asks again,
// and what it asked before blocks nobody.
TEST_P(CoordinatorRestart, AClaimOverALinkThatBreaksMeanwhileIsNobodys) {
  RunConfig config = run_of({1, 2, 1});
  config.wiring.hop_timeout_seconds = 0.3;
  config.net.peer_silence_seconds = 20;
  config.net.collect_seconds = 20;
  twice(config, [](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
    const SimNodeId source = swarm.node(0, 0), claimer = swarm.node(1, 0),
                    frozen = swarm.node(1, 1);
    ASSERT_TRUE(swarm.until_delivered(MessageKind::kForward, 2, source, frozen));
    swarm.freeze(frozen);  // the other one gets what it has: tries that are claimed
    swarm.cluster().kill_coordinator();
    swarm.cluster().restart_coordinator();
    ASSERT_TRUE(swarm.until_delivered(MessageKind::kClaim, 1, claimer));
    swarm.cluster().network().cut(kCoordinatorNode, claimer);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_resumed") == 4; }, 10s));
    swarm.thaw(frozen);
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }, 30s));
  });
}

// The only one of its stage is late: it is waited for, and what it holds is kept.
TEST_P(CoordinatorRestart, AStagesLastPeerIsWaitedFor) {
  RunConfig config = run_of({2, 1});
  config.net.peer_silence_seconds = 0;
  config.net.collect_seconds = 60;
  Swarm swarm(options_for(config));
  swarm.until_committed(1);
  const SimNodeId late = swarm.node(1, 0);
  kill_at(swarm, MessageKind::kSeal);
  swarm.freeze(late);
  swarm.cluster().restart_coordinator();
  swarm.cluster().runtime().run_for(30s);
  swarm.thaw(late);
  expect_reference(swarm, config);
  EXPECT_EQ(events(swarm, "peer_resumed"), 3U);
  EXPECT_EQ(events(swarm, "new_era"), 0U);
}

// It comes after the others have gone on: its seat is over, it fetches the state and serves again.
TEST_P(CoordinatorRestart, WhoComesTooLateStartsOver) {
  RunConfig config = run_of({1, 2, 1});
  config.run.steps = 12;
  config.net.peer_silence_seconds = 0;
  config.net.collect_seconds = 3600;
  SimClusterOptions options = options_for(config);
  options.peers.assign(4, {.forward = 40ms, .backward = 80ms, .jitter = 0});
  Swarm swarm(std::move(options));
  swarm.until_committed(1);
  const SimNodeId late = swarm.node(1, 1);
  kill_at(swarm, MessageKind::kSeal);
  swarm.freeze(late);
  swarm.cluster().restart_coordinator();
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }, 10s));
  swarm.thaw(late);
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 60s));
  swarm.finish();
  expect_equal(swarm.cluster().parameters(), reference_of(config));
  EXPECT_EQ(events(swarm, "peer_resumed"), 3U);
}

// A peer was asked to leave: the next coordinator hears of it, too.
TEST_P(CoordinatorRestart, ADrainIsNotForgotten) {
  for (const bool said : {true, false}) {  // before its coordinator died
    RunConfig config = run_of({2, 2});
    config.run.steps = 24;  // half a second: the next heartbeat says what it holds
    Swarm swarm(options_for(config));
    swarm.until_committed(1);
    const SimNodeId leaves = swarm.node(1, 1);
    ASSERT_TRUE(swarm.until_delivered(MessageKind::kReport, 1, leaves)) << "it owns something";
    if (said) swarm.cluster().peer(leaves - 1).request_drain(3600s);
    kill_at(swarm, MessageKind::kSeal);
    if (!said) swarm.cluster().peer(leaves - 1).request_drain(3600s);
    swarm.cluster().restart_coordinator();
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_left") == 1; }));
    EXPECT_EQ(events(swarm, "peer_resumed"), 4U);
    EXPECT_EQ(events(swarm, "peer_lost"), 0U);
    EXPECT_TRUE(swarm.until([&] { return !swarm.cluster().is_running(leaves - 1); }, 1s));
    expect_reference(swarm, config);
  }
}

// Nor that the run was to end after the open step.
TEST_P(CoordinatorRestart, AStopIsNotForgotten) {
  RunConfig config = run_of({2, 2});
  config.run.steps = 12;
  Swarm swarm(options_for(config));
  swarm.until_committed(1);
  swarm.cluster().coordinator().request_stop(false);
  kill_at(swarm, MessageKind::kSeal);
  swarm.cluster().restart_coordinator();
  swarm.finish();
  EXPECT_LE(commits_of(swarm.cluster()), 4U);
  EXPECT_TRUE(swarm.cluster().outcome()->sentence.starts_with("drained after step"))
      << swarm.cluster().outcome()->sentence;
  EXPECT_EQ(swarm.cluster().checkpoint().version(), commits_of(swarm.cluster()));
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
  swarm.until_committed(1);
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
