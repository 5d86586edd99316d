// Whoever has to go before its step ends gives what it has added to a mate: nothing of it is
// computed again, whoever else is lost meanwhile.
#include <numeric>

#include "tests/harness/mark_expected.h"
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class HandOver : public Protocol {
 protected:
  static constexpr Duration kNotice = 5s;  // a step takes twice as long

  RunConfig slow_run() const {
    RunConfig config = run_of({2, 3, 2});
    config.batch.batch = 64 * config.batch.microbatch;
    config.run.steps = 3;
    config.balance.moves = false;
    return config;
  }
  static void slow_machines(SimClusterOptions& options) {
    const std::vector<std::uint32_t>& stages = options.config.pipeline.peers;
    options.peers.assign(std::accumulate(stages.begin(), stages.end(), 0U),
                         SimPeer{.forward = 100ms, .backward = 200ms});
  }
  static std::uint64_t reports(Swarm& swarm, SimNodeId node) {
    return swarm.delivered(MessageKind::kReport, node, kCoordinatorNode);
  }
  // A peer of the stage that has added something of the second step gets a notice.
  static SimNodeId notice(Swarm& swarm, std::uint16_t stage) {
    swarm.until_committed(1);
    const SimNodeId giver = swarm.node(stage, 0);
    const std::uint64_t before = reports(swarm, giver);
    EXPECT_TRUE(swarm.until([&] { return reports(swarm, giver) >= before + 4; }, 20s));
    swarm.cluster().peer(giver - 1).request_drain(kNotice);
    return giver;
  }
  static bool gone(Swarm& swarm) {
    return swarm.until([&] { return events(swarm, "peer_left") == 1; }, kNotice + 1s);
  }
  // Who was asked to take it.
  static SimNodeId taker(Swarm& swarm, std::uint16_t stage, SimNodeId giver) {
    for (const SimNodeId node : swarm.serving(stage))
      if (node != giver && swarm.delivered(MessageKind::kTakeSums, kCoordinatorNode, node) > 0)
        return node;
    ADD_FAILURE() << "nobody was asked to take it\n" << history(swarm);
    return 0;
  }
  static bool asked(Swarm& swarm) {
    return swarm.until([&] { return swarm.delivered(MessageKind::kTakeSums) == 1; }, kNotice);
  }
};

TEST_P(HandOver, WhoGoesBeforeItsStepEndsGivesItsSumsToAMate) {
  for (std::uint16_t stage = 0; stage < 3; ++stage) {
    SCOPED_TRACE(stage);
    const RunConfig config = slow_run();
    const MarkExpected adopted("hand_over.adopted");
    std::uint64_t computed = 0;
    SimClusterOptions options =
        options_for(config, {.before_forward = [&](StageId, int, const AttemptId&) -> Result<void> {
                      ++computed;
                      return {};
                    }});
    slow_machines(options);
    Swarm swarm(std::move(options));
    notice(swarm, stage);
    ASSERT_TRUE(gone(swarm)) << history(swarm);
    EXPECT_EQ(commits_of(swarm.cluster()), 1U) << "it went before its step ended";
    EXPECT_GE(events(swarm, "peer_handed_over"), 1U);
    EXPECT_EQ(events(swarm, "peer_lost"), 0U);
    expect_reference(swarm, config);
    EXPECT_EQ(computed,
              config.run.steps * config.microbatches_per_step() * config.pipeline.peers.size())
        << "nothing twice";
  }
}

TEST_P(HandOver, AStepThatEndsInTimeIsWaitedFor) {
  RunConfig config = slow_run();
  twice(config, slow_machines, [](Swarm& swarm) {
    swarm.until_committed(1);
    swarm.cluster().runtime().run_for(1s);
    swarm.cluster().peer(swarm.node(1, 0) - 1).request_drain(60s);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_left") == 1; }, 60s));
    EXPECT_EQ(events(swarm, "peer_handed_over"), 0U);
  });
}

TEST_P(HandOver, TheGiverIsLostBeforeAllIsFetched) {
  const MarkExpected dropped("hand_over.dropped");
  twice(slow_run(), slow_machines, [](Swarm& swarm) {
    const SimNodeId giver = notice(swarm, 1);
    for (const SimNodeId mate : swarm.serving(1))
      if (mate != giver) swarm.hold(giver, mate, MessageKind::kPiece);
    ASSERT_TRUE(asked(swarm));
    swarm.cluster().runtime().run_for(100ms);
    swarm.kill(giver);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_lost") == 1; }, 20s));
    EXPECT_EQ(events(swarm, "peer_handed_over"), 0U);
  });
}

TEST_P(HandOver, TheTakerIsLostBeforeItIsTheOwner) {
  const RunConfig config = slow_run();
  twice(config, slow_machines, [&](Swarm& swarm) {
    const SimNodeId giver = notice(swarm, 1);
    for (const SimNodeId mate : swarm.serving(1))
      swarm.hold(mate, kCoordinatorNode, MessageKind::kSumsTaken);
    ASSERT_TRUE(asked(swarm));
    const SimNodeId lost = taker(swarm, 1, giver);
    for (const SimNodeId mate : swarm.serving(1))
      if (mate != lost) swarm.release(mate, kCoordinatorNode);
    swarm.cluster().runtime().run_for(100ms);
    swarm.kill(lost);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_handed_over") >= 1; }, kNotice))
        << "another mate takes it\n"
        << history(swarm);
    ASSERT_TRUE(gone(swarm));
  });
}

TEST_P(HandOver, TheTakerIsLostWithWhatItWasGiven) {
  twice(slow_run(), slow_machines, [](Swarm& swarm) {
    const SimNodeId giver = notice(swarm, 1);
    ASSERT_TRUE(asked(swarm));
    const SimNodeId lost = taker(swarm, 1, giver);
    ASSERT_TRUE(gone(swarm)) << history(swarm);
    swarm.kill(lost);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_lost") == 1; }, 20s));
  });
}

// The ledger has changed the owner, and nobody, or one of the two alone, hears of it.
TEST_P(HandOver, TheCoordinatorIsLostAsTheOwnerChanges) {
  for (const bool taker_hears : {false, true})
    for (const bool giver_hears : {false, true}) {
      const RunConfig config = slow_run();
      twice(config, slow_machines, [&](Swarm& swarm) {
        const SimNodeId giver = notice(swarm, 1);
        for (const SimNodeId mate : swarm.serving(1))
          if (!(mate == giver ? giver_hears : taker_hears))
            swarm.hold(kCoordinatorNode, mate, MessageKind::kSumsMoved);
        ASSERT_TRUE(swarm.until_delivered(MessageKind::kSumsTaken, 1));
        swarm.cluster().runtime().run_for(5ms);
        swarm.cluster().kill_coordinator();
        swarm.cluster().restart_coordinator();
        ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_left") == 1; }, 20s))
            << history(swarm);
        EXPECT_EQ(events(swarm, "new_era"), 0U);
      });
    }
}

// The step seemed to take for ever. It is sealed before the taker has all: the giver is a member of
// its averaging, with what is in its sums.
TEST_P(HandOver, TheStepIsSealedMeanwhile) {
  const MarkExpected gives("hand_over.gives");
  twice(slow_run(), slow_machines, [](Swarm& swarm) {
    swarm.until_committed(1);
    const SimNodeId giver = swarm.node(1, 0);
    swarm.cluster().runtime().run_for(4s);
    for (const SimNodeId mate : swarm.serving(1))
      swarm.cluster().network().set_link(giver, mate, {.bytes_per_second = 1e3});
    const std::vector<SimNodeId> sources = swarm.serving(0);
    for (const SimNodeId source : sources) swarm.freeze(source);
    swarm.cluster().peer(giver - 1).request_drain(60s);
    ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kTakeSums) == 1; }, 60s));
    for (const SimNodeId source : sources) swarm.thaw(source);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_left") == 1; }, 60s));
    EXPECT_EQ(events(swarm, "peer_handed_over"), 0U) << history(swarm);
  });
}

INSTANTIATE_TEST_SUITE_P(Delay, HandOver, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
