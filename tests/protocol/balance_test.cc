// Seats that the planner chooses: who moves, where a newcomer goes, and that the sum stays exact.
#include "tests/harness/mark_expected.h"
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class Balance : public Protocol {
 protected:
  RunConfig balanced(std::vector<std::uint32_t> peers) const {
    RunConfig config = run_of(std::move(peers));
    config.run.steps = 16;
    config.balance.moves = true;
    config.wiring.hop_timeout_seconds = 2;
    config.net.heartbeat_seconds = 0.02;
    return config;
  }
};

// Two of three peers of a stage are lost at once: a peer of another stage moves there by itself.
TEST_P(Balance, APeerMovesToAStageThatLostTwo) {
  twice(balanced({3, 3, 3, 3}), [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }));
    const SimNodeId gone[] = {swarm.node(2, 0), swarm.node(2, 1)};
    for (const SimNodeId node : gone) swarm.kill(node);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 5s));
    EXPECT_EQ(events(swarm, "move", "to stage 2"), 1U);
    EXPECT_EQ(events(swarm, "peer_moves"), 1U);
    EXPECT_EQ(events(swarm, "peer_handed_over"), 0U) << "steps are short";
    EXPECT_TRUE(swarm.until([&] { return swarm.serving(2).size() == 2; }, 1s));
  });
}

// A step takes half a minute: who moves does not wait for its end, and gives a mate what it has
// added.
TEST_P(Balance, InsideALongStepAPeerMovesBeforeItEnds) {
  RunConfig config = balanced({3, 3, 3, 3});
  config.batch.batch = 64 * config.batch.microbatch;
  config.run.steps = 3;
  config.wiring.hop_timeout_seconds = 60;
  const SimPeer machine{.forward = 400ms, .backward = 800ms, .jitter = 0};
  const MarkExpected inside("relocation.inside_step");
  twice(config, on(std::vector<SimPeer>(12, machine)), [&](Swarm& swarm) {
    swarm.until_committed(1);
    swarm.cluster().runtime().run_for(4s);
    const SimNodeId gone[] = {swarm.node(2, 0), swarm.node(2, 1)};
    for (const SimNodeId node : gone) swarm.kill(node);
    // All of the step takes 77 s of the last one's device.
    ASSERT_TRUE(swarm.until([&] { return swarm.serving(2).size() == 2; }, 77s)) << history(swarm);
    EXPECT_EQ(commits_of(swarm.cluster()), 1U) << "in the same step";
    EXPECT_EQ(events(swarm, "move", "to stage 2"), 1U);
    EXPECT_GE(events(swarm, "peer_handed_over"), 1U);
    EXPECT_EQ(events(swarm, "peer_lost"), 2U) << "what the mover has added is not lost";
  });
}

// Nothing is gained by a move: everybody stays.
TEST_P(Balance, OneLossOfThreeMovesNobody) {
  twice(balanced({3, 3}), [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }));
    swarm.kill(swarm.node(1, 0));
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 12; }));
    EXPECT_EQ(events(swarm, "move"), 0U);
  });
}

// A newcomer goes where work is slowest, not where heads are fewest.
TEST_P(Balance, AJoinerGoesToTheSlowestStage) {
  const RunConfig config = balanced({1, 2});
  std::vector<SimPeer> machines(3, {.forward = 2ms, .backward = 4ms, .jitter = 0});
  for (const std::size_t slow : {1U, 2U})
    machines[slow] = {.forward = 12ms, .backward = 24ms, .jitter = 0};
  twice(config, on(machines), [&](Swarm& swarm) {
    const std::uint16_t slow_stage = swarm.stage_of(SimCluster::node_of_peer(1));
    ASSERT_EQ(swarm.stage_of(SimCluster::node_of_peer(2)), slow_stage)
        << "the slow serve one stage";
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }));
    const std::size_t place = swarm.cluster().add_peer({});
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 5s));
    EXPECT_EQ(swarm.stage_of(SimCluster::node_of_peer(place)), slow_stage);
  });
}

// The mover's stage loses everybody else before it has gone: it stays.
TEST_P(Balance, AMoveIsCalledOffWhenTheStageHasNobodyElse) {
  RunConfig config = balanced({2, 2, 3});
  config.net.heartbeat_seconds = 0.5;  // so that the mover's release takes a while
  twice(config, [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }));
    const SimNodeId mates[] = {swarm.node(2, 0), swarm.node(2, 1), swarm.node(2, 2)};
    swarm.kill(swarm.node(0, 0));
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "move") == 1; }, 20s));
    for (const SimNodeId mate : mates) {
      if (events(swarm, "move", called(swarm, mate)) == 0) swarm.kill(mate);
    }
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "move_called_off") == 1; }, 20s));
    EXPECT_EQ(swarm.serving(2).size(), 1U);
    EXPECT_EQ(events(swarm, "peer_moves"), 0U);
  });
}

// One of three becomes six times as slow as it was: after two minutes it is let go.
TEST_P(Balance, APeerThatBecomesSlowIsLetGo) {
  RunConfig config = balanced({3});
  config.run.steps = 20;
  config.batch.batch *= 3;  // even a slow peer gets some of a step
  config.net.heartbeat_seconds = 0.5;
  config.wiring.hop_timeout_seconds = 600;
  const SimPeer machine{.forward = 1s, .backward = 2s, .jitter = 0};
  twice(config, on({machine, machine, machine}), [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }, 600s));
    const SimNodeId slow = swarm.node(0, 1);
    swarm.cluster().device(slow - 1).slow_down(6);
    const Duration began = swarm.cluster().elapsed();
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "fail_slow") == 1; }, 1200s));
    EXPECT_GE(swarm.cluster().elapsed() - began, 120s);
    EXPECT_EQ(events(swarm, "fail_slow", called(swarm, slow)), 1U);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_left") == 1; }, 600s));
    EXPECT_FALSE(swarm.cluster().coordinator().serves(swarm.cluster().peer(slow - 1).seat()));
  });
}

// ... and so is one that becomes so slow that whatever it gets is sent elsewhere meanwhile. Nobody
// sends it to another stage first, not even to one that is slower.
TEST_P(Balance, APeerTooSlowForAnyOfItsWorkToCountIsLetGo) {
  for (const std::uint32_t first : {3U, 1U}) {
    RunConfig config = balanced({first, 3});
    config.run.steps = 24;
    config.net.heartbeat_seconds = 0.5;
    config.wiring.hop_timeout_seconds = 80;
    const SimPeer machine{.forward = 2s, .backward = 2s, .jitter = 0};
    twice(config, on(std::vector<SimPeer>(first + 3, machine)), [&](Swarm& swarm) {
      ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }, 600s));
      const SimNodeId slow = swarm.node(1, 1);
      const std::string who = called(swarm, slow);
      swarm.cluster().device(slow - 1).slow_down(50);  // a forward takes longer than a hop may
      ASSERT_TRUE(swarm.until([&] { return events(swarm, "fail_slow") == 1; }, 3600s));
      EXPECT_EQ(events(swarm, "fail_slow", who), 1U);
      ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_left") == 1; }, 600s));
      EXPECT_EQ(events(swarm, "peer_moves", who), 0U);
      EXPECT_EQ(events(swarm, "peer_lost"), 0U);
    });
  }
}

// It never was as fast as its mates: it does what it can.
TEST_P(Balance, ASmallMachineStays) {
  RunConfig config = balanced({1, 3});
  config.net.heartbeat_seconds = 0.5;
  config.wiring.hop_timeout_seconds = 600;
  std::vector<SimPeer> machines(4, {.forward = 4s, .backward = 8s, .jitter = 0});
  machines[2] = {.forward = 40s, .backward = 80s, .jitter = 0};
  twice(config, on(machines), [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 14; }, 3h));
    EXPECT_GT(swarm.cluster().elapsed(), 240s);
    EXPECT_EQ(events(swarm, "fail_slow"), 0U);
    EXPECT_EQ(events(swarm, "peer_moves"), 0U) << "as a source it would hold up every step";
  });
}

INSTANTIATE_TEST_SUITE_P(Delay, Balance, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
