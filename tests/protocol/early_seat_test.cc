// Who fetches its stage's state serves the open step as soon as it has the parameters. The rest
// comes meanwhile, or after the commit; nobody waits for it, and it is nobody's heir.
#include <numeric>

#include "pipeline/protocol/knobs.h"
#include "tests/harness/mark_expected.h"
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

// With a delay the version before is computed on, too: nobody serves early.
class EarlySeat : public Protocol {
 protected:
  // Parameters come in a quarter of a step, whose source has not taken all of its microbatches by
  // then; the rest comes after the step.
  static constexpr double kBytesPerSecond = 40e3;

  static Knobs small_pieces() {
    Knobs knobs;
    knobs.state_piece_bytes = 1024;
    return knobs;
  }
  RunConfig slow_run(std::vector<std::uint32_t> peers) const {
    RunConfig config = run_of(std::move(peers));
    config.batch.batch = 64;
    config.run.steps = 6;
    return config;
  }
  static SimPeer slow_machine() { return {.forward = 16ms, .backward = 32ms}; }
  static void slow_links(SimClusterOptions& options) {
    const std::vector<std::uint32_t>& stages = options.config.pipeline.peers;
    options.peers.assign(std::accumulate(stages.begin(), stages.end(), 0U), slow_machine());
    options.link.bytes_per_second = kBytesPerSecond;
  }
  static std::uint64_t reports(Swarm& swarm, SimNodeId node) {
    return swarm.delivered(MessageKind::kReport, node, kCoordinatorNode);
  }
  // One comes, and has an early seat.
  static SimNodeId early_one(Swarm& swarm) {
    swarm.until_committed(1);
    const SimNodeId node = SimCluster::node_of_peer(swarm.cluster().add_peer(slow_machine()));
    EXPECT_TRUE(swarm.until([&] { return events(swarm, "early_seat") == 1; }, 5s));
    return node;
  }
  // Nothing is committed until they are let go.
  static std::vector<SimNodeId> hold_results_of(Swarm& swarm, std::uint16_t stage) {
    std::vector<SimNodeId> nodes = swarm.serving(stage);
    for (const SimNodeId node : nodes) swarm.hold(node, kCoordinatorNode, MessageKind::kReduced);
    return nodes;
  }
  static void let_go(Swarm& swarm, const std::vector<SimNodeId>& nodes) {
    for (const SimNodeId node : nodes) swarm.release(node, kCoordinatorNode);
  }

  TurnedKnobs knobs_{small_pieces()};
};

TEST_P(EarlySeat, ItAddsBeforeItHasAllOfItsState) {
  const MarkExpected over("settling.early_seat_over");
  twice(slow_run({1, 2}), slow_links, [](Swarm& swarm) {
    const SimNodeId joiner = early_one(swarm);
    ASSERT_EQ(swarm.stage_of(joiner), 0U);
    ASSERT_TRUE(swarm.until([&] { return reports(swarm, joiner) > 0; }, 5s));
    EXPECT_EQ(events(swarm, "peer_seated"), 0U);
    EXPECT_EQ(commits_of(swarm.cluster()), 1U);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 20s));
    EXPECT_EQ(events(swarm, "peer_lost"), 0U);
  });
}

TEST_P(EarlySeat, WhoHasAllBeforeTheCommitStays) {
  const MarkExpected rest("settling.early_seat_has_the_rest");
  twice(slow_run({1, 2}), slow_links, [](Swarm& swarm) {
    swarm.until_committed(1);
    const std::vector<SimNodeId> held = hold_results_of(swarm, 1);
    const SimNodeId joiner = SimCluster::node_of_peer(swarm.cluster().add_peer(slow_machine()));
    for (const SimNodeId node : swarm.serving(1))
      swarm.hold(node, kCoordinatorNode, MessageKind::kReport);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "early_seat") == 1; }, 5s));
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 20s));
    EXPECT_EQ(commits_of(swarm.cluster()), 1U);
    let_go(swarm, held);
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }, 20s));
    EXPECT_GT(reports(swarm, joiner), 0U);
  });
}

// What it owns counts; what it lacks it fetches of the others.
TEST_P(EarlySeat, AHolderIsLostWhileTheRestIsOnItsWay) {
  twice(slow_run({2, 2}), slow_links, [](Swarm& swarm) {
    const SimNodeId joiner = early_one(swarm);
    const std::uint16_t stage = swarm.stage_of(joiner);
    swarm.kill(swarm.node(stage, 0));
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 20s));
    EXPECT_EQ(events(swarm, "new_era"), 0U);
  });
}

TEST_P(EarlySeat, IsNotTheHeirOfItsStage) {
  const MarkExpected alone("settling.early_seat_without_a_holder");
  twice(slow_run({1, 2}), slow_links, [](Swarm& swarm) {
    early_one(swarm);
    swarm.kill(swarm.node(0, 0));
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "new_era") == 1; }, 20s));
  });
}

// Nobody is left who says which bits it should hold, and nobody says that it should hold others.
TEST_P(EarlySeat, WhoHasAllInheritsThoughItWasNotCompared) {
  const MarkExpected inherits("settling.early_seat_inherits");
  twice(slow_run({2, 2}), slow_links, [](Swarm& swarm) {
    swarm.until_committed(1);
    const SimNodeId gives = swarm.node(0, 0), silent = swarm.node(0, 1);
    swarm.hold(silent, kCoordinatorNode, MessageKind::kStepped);
    const std::vector<SimNodeId> held = hold_results_of(swarm, 1);
    const SimNodeId joiner = early_one(swarm);
    ASSERT_EQ(swarm.stage_of(joiner), 0U);
    swarm.hold(joiner, kCoordinatorNode, MessageKind::kReady);
    const std::uint64_t pieces = swarm.delivered(MessageKind::kPiece, gives, joiner);
    ASSERT_TRUE(swarm.until(
        [&] { return swarm.delivered(MessageKind::kPiece, gives, joiner) == 3 * pieces; }, 20s));
    swarm.kill(gives);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_lost") == 1; }, 5s));
    swarm.release(joiner, kCoordinatorNode);
    ASSERT_TRUE(swarm.until(
        [&] { return swarm.delivered(MessageKind::kReady, joiner, kCoordinatorNode) == 2; }, 5s));
    ASSERT_EQ(events(swarm, "peer_seated"), 0U);
    swarm.kill(silent);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 5s));
    EXPECT_EQ(swarm.serving(0), std::vector<SimNodeId>{joiner});
    let_go(swarm, held);
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }, 20s));
    EXPECT_EQ(events(swarm, "new_era"), 0U);
  });
}

// It has the sum, and not what is stepped with it.
TEST_P(EarlySeat, AResultWithoutAStateSavesNoStage) {
  twice(slow_run({1, 2}), slow_links, [](Swarm& swarm) {
    const SimNodeId joiner = early_one(swarm);
    const std::vector<SimNodeId> held = hold_results_of(swarm, 1);
    ASSERT_TRUE(
        swarm.until([&] { return swarm.delivered(MessageKind::kReduced, joiner) == 1; }, 20s));
    ASSERT_EQ(events(swarm, "peer_seated"), 0U);
    swarm.kill(swarm.node(0, 0));
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "new_era") == 1; }, 20s));
    let_go(swarm, held);
  });
}

TEST_P(EarlySeat, ASealedStepTakesNobodyMore) {
  const MarkExpected late("settling.too_late_for_an_early_seat");
  twice(slow_run({1, 2}), slow_links, [](Swarm& swarm) {
    swarm.until_committed(1);
    const std::vector<SimNodeId> held = hold_results_of(swarm, 1);
    const std::uint64_t said = swarm.delivered(MessageKind::kReduced, swarm.node(0, 0));
    ASSERT_TRUE(swarm.until(
        [&] { return swarm.delivered(MessageKind::kReduced, swarm.node(0, 0)) > said; }, 20s));
    swarm.cluster().add_peer(slow_machine());
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 20s));
    EXPECT_EQ(events(swarm, "early_seat"), 0U);
    let_go(swarm, held);
  });
}

// The next coordinator knows of no early seat: it joins again, and what it added is added anew.
TEST_P(EarlySeat, ACoordinatorIsLostMeanwhile) {
  twice(slow_run({1, 2}), slow_links, [](Swarm& swarm) {
    const SimNodeId joiner = early_one(swarm);
    ASSERT_TRUE(swarm.until([&] { return reports(swarm, joiner) > 0; }, 5s));
    swarm.cluster().kill_coordinator();
    swarm.cluster().restart_coordinator();
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 30s));
    EXPECT_EQ(events(swarm, "peer_resumed"), 3U);
    EXPECT_EQ(events(swarm, "new_era"), 0U);
  });
}

TEST_P(EarlySeat, ItLeavesWithNothingLost) {
  twice(slow_run({1, 2}), slow_links, [](Swarm& swarm) {
    const SimNodeId joiner = early_one(swarm);
    ASSERT_TRUE(swarm.until([&] { return reports(swarm, joiner) > 0; }, 5s));
    swarm.cluster().peer(joiner - 1).request_drain(30s);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_left") == 1; }, 20s));
    EXPECT_EQ(events(swarm, "peer_lost"), 0U);
    EXPECT_EQ(swarm.delivered(MessageKind::kReopen), 0U);
  });
}

TEST_P(EarlySeat, TheLastHolderStaysUntilItHasAll) {
  twice(slow_run({1, 2}), slow_links, [](Swarm& swarm) {
    early_one(swarm);
    swarm.cluster().peer(swarm.node(0, 0) - 1).request_drain(60s);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 20s));
    EXPECT_EQ(events(swarm, "peer_left"), 0U);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_left") == 1; }, 20s));
    EXPECT_EQ(events(swarm, "new_era"), 0U);
  });
}

// One after the other, of two stages, with steps that end in between.
TEST_P(EarlySeat, ManyComeAtAnyTime) {
  const MarkExpected early("settling.early_seat");
  const MarkExpected late("settling.too_late_for_an_early_seat");
  for (const Duration later : {0ms, 200ms, 400ms})
    twice(slow_run({1, 2}), slow_links, [later](Swarm& swarm) {
      swarm.until_committed(1);
      for (int joiner = 0; joiner < 3; ++joiner) {
        swarm.cluster().runtime().run_for(later);
        swarm.cluster().add_peer(slow_machine());
      }
      ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 3; }, 60s));
      EXPECT_EQ(events(swarm, "peer_lost"), 0U);
    });
}

INSTANTIATE_TEST_SUITE_P(Delay, EarlySeat, testing::Values(0U));

}  // namespace
}  // namespace swarmline
