// Peers are lost while their stage keeps another: the run goes on and ends with the reference's
// parameters, whatever the moment; the same events give the same trace.
#include "tests/harness/mark_expected.h"
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class Loss : public Protocol {
 protected:
  // Of its stage, and of the embedding that the first and the last stage share.
  static bool has_all_sums(Swarm& swarm, SimNodeId node) {
    return swarm.delivered(MessageKind::kReduced, node) >= 2;
  }
};

TEST_P(Loss, AKilledPeerOfAnyStageIsMissedForLessThanATenthOfASecond) {
  for (std::uint16_t stage = 0; stage < 3; ++stage)
    twice(run_of({2, 2, 2}), [&](Swarm& swarm) {
      ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
      swarm.kill(swarm.node(stage, 1));
      EXPECT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kPeerLost) >= 5; }, 100ms));
      EXPECT_EQ(events(swarm, "peer_lost"), 1U);
    });
}

TEST_P(Loss, AFrozenPeerIsFencedWithinThreeSecondsAtDefaults) {
  RunConfig config = run_of({2, 2});
  config.net.peer_silence_seconds = NetSection{}.peer_silence_seconds;
  for (std::uint16_t stage = 0; stage < 2; ++stage)
    twice(config, [&](Swarm& swarm) {
      ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
      swarm.freeze(swarm.node(stage, 1));
      EXPECT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kPeerLost) >= 3; }, 3s));
      swarm.thaw(swarm.node(stage, 1));
    });
}

// It takes seconds for what others do in milliseconds, and its heartbeats come: it is slow.
TEST_P(Loss, ASlowPeerIsNotDeclaredDead) {
  RunConfig config = run_of({1, 2});
  config.net.peer_silence_seconds = NetSection{}.peer_silence_seconds;
  const auto slow = [](SimClusterOptions& options) {
    options.peers = {SimPeer{}, {.forward = 4s, .backward = 8s}, SimPeer{}};
    options.link.jitter = 80ms;
  };
  twice(config, slow, [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
    EXPECT_EQ(events(swarm, "peer_lost"), 0U);
  });
}

// What a source has started is nobody else's to send elsewhere: when all else of the step is there,
// the other source starts it, too, and whoever is first has it.
TEST_P(Loss, WhatASlowSourceHoldsIsLeasedOnceMore) {
  RunConfig config = run_of({2, 2});
  config.run.steps = 10;
  config.batch.batch *= 2;
  twice(config, [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 5; }));
    const auto again = std::make_shared<std::set<Attempt>>();
    swarm.watch([again](SimNodeId, SimNodeId, const Frame& frame) {
      if (kind_of(frame) != MessageKind::kLeases) return;
      for (const wire::Lease& lease : parse<wire::Leases>(frame)->leases())
        if (lease.attempt() != 0) again->insert(Attempt{lease.attempt()});
    });
    swarm.cluster().device(swarm.node(0, 1) - 1).slow_down(100);
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 7; }));
    EXPECT_FALSE(again->empty());
    EXPECT_EQ(events(swarm, "peer_lost"), 0U);
  });
}

// Its control thread answers, its device ends nothing: whoever waits for it goes elsewhere, and it
// is fenced after two of the times that one hop's work may take.
TEST_P(Loss, APeerThatAnswersButDoesNotFinishIsFenced) {
  RunConfig config = run_of({1, 2});
  config.wiring.hop_timeout_seconds = 2;
  const SimPeer stuck{.forward = 100h, .backward = 100h};
  const MarkExpected fired("reign.stuck_device");
  twice(config, on({SimPeer{}, stuck, SimPeer{}}), [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_lost") > 0; }, 20s));
    EXPECT_EQ(events(swarm, "peer_lost", "its device has ended nothing"), 1U);
  });
}

// Each of its jobs takes longer than a device may be stuck: it comes back, and is fenced again,
// before anything of its counts. The third time it is told to end.
TEST_P(Loss, APeerThatNeverFinishesIsNotTakenForEver) {
  RunConfig config = run_of({1, 2});
  config.run.steps = 36;
  config.wiring.hop_timeout_seconds = 0.2;
  config.net.heartbeat_seconds = 0.05;
  const SimPeer stuck{.forward = 1s, .backward = 1s};
  twice(config, on({SimPeer{}, stuck, SimPeer{}}), [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_refused") == 1; }, 20s));
    EXPECT_EQ(events(swarm, "peer_refused", "3 times without a contribution between"), 1U);
    EXPECT_EQ(events(swarm, "peer_lost", "its device has ended nothing"), 2U);
  });
}

// B has added, and its gradient has gone on; its report dies with it. Nobody holds that try any
// more, and the ledger has never heard of it.
TEST_P(Loss, AReportIsLostAfterItsGradientHasGoneOn) {
  const MarkExpected doubt("ledger.doubt_resolved");
  twice(run_of({1, 2, 1}), [&](Swarm& swarm) {
    const SimNodeId a = swarm.node(0, 0), b = swarm.node(1, 0);
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
    swarm.hold(b, kCoordinatorNode, MessageKind::kReport);
    ASSERT_TRUE(swarm.until_delivered(MessageKind::kGradient, 2, b, a));
    swarm.kill(b);
  });
}

// ... and hears that the way before it is done when nobody asks for work any more.
TEST_P(Loss, AReportIsLostAndTheSourcesOwnComesLast) {
  RunConfig config = run_of({1, 2});
  config.run.steps = 1;
  config.batch.batch = config.batch.microbatch;
  twice(config, [&](Swarm& swarm) {
    const SimNodeId a = swarm.node(0, 0);
    const auto b = std::make_shared<SimNodeId>(0);
    swarm.watch([b](SimNodeId from, SimNodeId, const Frame& frame) {
      if (kind_of(frame) == MessageKind::kGradient && *b == 0) *b = from;
    });
    for (const SimNodeId node : {a, swarm.node(1, 0), swarm.node(1, 1)})
      swarm.hold(node, kCoordinatorNode, MessageKind::kReport);
    ASSERT_TRUE(swarm.until([&] { return *b != 0; }));
    swarm.cluster().runtime().run_for(100ms);
    for (const SimNodeId node : {swarm.node(1, 0), swarm.node(1, 1)})
      node == *b ? swarm.kill(node) : void(swarm.release(node, kCoordinatorNode));
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_lost") == 1; }));
    swarm.release(a, kCoordinatorNode);
  });
}

// A source is lost with everything it started.
TEST_P(Loss, ASourceIsLostWithAllUnderWay) {
  const MarkExpected lost("ledger.source_lost"), again("ledger.missing_leased_again");
  RunConfig config = run_of({2, 1, 1});
  config.pipeline.in_flight = 4;
  twice(config, [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kForward) > 10; }));
    swarm.kill(swarm.node(0, 1));
  });
}

TEST_P(Loss, APeerIsLostDuringAnEvaluation) {
  const MarkExpected doubt("ledger.evaluation_doubted");
  const auto evaluating = [](SimClusterOptions& options) { options.eval_sequences = 16; };
  twice(run_of({2, 2, 2}), evaluating, [&](Swarm& swarm) {
    const auto at = std::make_shared<std::optional<SimNodeId>>();
    swarm.watch([&swarm, at](SimNodeId, SimNodeId to, const Frame& frame) {
      if (*at || kind_of(frame) != MessageKind::kForward || swarm.stage_of(to) != 1) return;
      if (attempt_of(frame)->microbatch.phase.kind == PhaseKind::kEval) *at = to;
    });
    ASSERT_TRUE(swarm.until([&] { return at->has_value(); }));
    swarm.kill(**at);
  });
}

// What a seal asks of its owner dies with it.
TEST_P(Loss, AnOwnerIsLostBetweenSealAndAveraging) {
  const MarkExpected reopened("open_phases.reopened");
  twice(run_of({2, 3, 2}), [&](Swarm& swarm) {
    const SimNodeId b = swarm.node(1, 1);
    ASSERT_TRUE(swarm.until_delivered(MessageKind::kSeal, 2, {}, b));
    swarm.kill(b);
    ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kReopen) > 0; }));
  });
}

// In the middle of the all-reduce, at each of many chunks of each stage.
TEST_P(Loss, AMemberIsLostDuringTheAllReduce) {
  for (std::uint16_t stage = 0; stage < 2; ++stage)
    for (const std::uint64_t chunks : {1U, 2U, 4U, 7U}) {
      RunConfig config = run_of({3, 3});
      config.model.d_model = 48;  // large enough that every member has a slice
      config.run.steps = 3;
      const MarkExpected broken("ledger.closing_stage_lost_an_owner");
      twice(config, [&](Swarm& swarm) {
        const SimNodeId gone = swarm.node(stage, 1);
        ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
        ASSERT_TRUE(swarm.until_delivered(MessageKind::kReduceChunk, chunks));
        swarm.kill(gone);
      });
    }
}

// It has the result and said so; its mates have it too, or one of them fetches it.
TEST_P(Loss, AMemberDiesAfterReduceBeforeCommit) {
  const MarkExpected kept("ledger.result_outlives_a_member");
  twice(run_of({2, 2}), [&](Swarm& swarm) {
    const SimNodeId gone = swarm.node(1, 1), mate = swarm.node(1, 0);
    swarm.hold(mate, kCoordinatorNode, MessageKind::kReduced);
    ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kReduced, gone) > 0; }));
    swarm.kill(gone);
    swarm.cluster().runtime().run_for(50ms);
    swarm.release(mate, kCoordinatorNode);
  });
}

// One has the result; the slice of the lost one never reached the other, who fetches the whole.
TEST_P(Loss, AResultThatOneHolderHasOwnsItsContributions) {
  const MarkExpected kept("ledger.result_outlives_a_member");
  const MarkExpected fetched("gradients.fetched_instead_of_averaged");
  RunConfig config = run_of({1, 3});
  config.model.d_model = 48;
  twice(config, [&](Swarm& swarm) {
    const SimNodeId gone = swarm.node(1, 2), holder = swarm.node(1, 0), late = swarm.node(1, 1);
    swarm.rule([gone, late](SimNodeId from, SimNodeId to, const Frame& frame) {
      const bool lost = from == gone && to == late && kind_of(frame) == MessageKind::kReduceChunk &&
                        parse<wire::ReduceChunk>(frame)->gather();
      return lost ? FrameFate{.kind = FrameFate::Kind::kHold, .delay = {}} : FrameFate{};
    });
    ASSERT_TRUE(swarm.until([&] { return has_all_sums(swarm, holder); }));
    swarm.kill(gone);
    ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kReduced, late) > 0; }));
    EXPECT_GT(swarm.delivered(MessageKind::kPiece, holder, late), 0U);
    EXPECT_EQ(swarm.delivered(MessageKind::kReopen), 0U) << "nothing was computed again";
  });
}

// The only holder goes before anybody has fetched from it: its contributions are computed again.
TEST_P(Loss, TheLastHolderOfAResultIsLost) {
  const MarkExpected lost("ledger.reduction_lost"), said("commit_round.result_lost");
  RunConfig config = run_of({1, 3});
  config.model.d_model = 48;
  twice(config, [&](Swarm& swarm) {
    const SimNodeId gone = swarm.node(1, 2), holder = swarm.node(1, 0), late = swarm.node(1, 1);
    swarm.rule([gone, late](SimNodeId from, SimNodeId to, const Frame& frame) {
      const bool lost = from == gone && to == late && kind_of(frame) == MessageKind::kReduceChunk &&
                        parse<wire::ReduceChunk>(frame)->gather();
      return lost ? FrameFate{.kind = FrameFate::Kind::kHold, .delay = {}} : FrameFate{};
    });
    ASSERT_TRUE(swarm.until([&] { return has_all_sums(swarm, holder); }));
    swarm.kill(gone);
    swarm.kill(holder);
    ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kReopen) > 0; }));
  });
}

TEST_P(Loss, AMemberIsLostDuringTheCommit) {
  for (std::uint16_t stage = 0; stage < 2; ++stage)
    twice(run_of({2, 2}), [&](Swarm& swarm) {
      const SimNodeId gone = swarm.node(stage, 0);
      swarm.hold(kCoordinatorNode, gone, MessageKind::kCommit);
      ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kCommit) > 0; }));
      swarm.kill(gone);
      ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_lost") == 1; }));
      EXPECT_EQ(swarm.delivered(MessageKind::kCommit, kCoordinatorNode, gone), 0U);
    });
}

// A member of one of the two stages that share the embedding: its group and the shared one go on
// without it.
TEST_P(Loss, AMemberIsLostWhileTheTiedEmbeddingIsAveraged) {
  for (const std::uint16_t stage : {std::uint16_t{0}, std::uint16_t{2}})
    for (const std::uint64_t chunks : {1U, 2U, 4U}) {
      RunConfig config = run_of({2, 1, 2});
      config.model.tied_embeddings = true;
      SCOPED_TRACE(fmt::format("stage {} after {} chunks", stage, chunks));
      const MarkExpected broken("ledger.closing_stage_lost_an_owner");
      twice(config, [&](Swarm& swarm) {
        ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
        ASSERT_TRUE(swarm.until_delivered(MessageKind::kReduceChunk, chunks));
        swarm.kill(swarm.node(stage, 1));
      });
    }
}

// More of a stage at once than a microbatch has tries, and the links say so before the coordinator.
TEST_P(Loss, MostOfALargeStageIsLostAtOnce) {
  const MarkExpected again("forwarder.sent_again_after_link_loss");
  RunConfig config = run_of({1, 12});
  config.batch.batch *= 2;
  twice(config, [&](Swarm& swarm) {
    const SimNodeId a = swarm.node(0, 0);
    std::vector<SimNodeId> gone = swarm.serving(1);
    gone.pop_back();
    ASSERT_TRUE(swarm.until_delivered(MessageKind::kForward, 12));
    swarm.hold(kCoordinatorNode, a);
    for (const SimNodeId node : gone) swarm.kill(node);
    swarm.cluster().runtime().run_for(200ms);
    swarm.release(kCoordinatorNode, a);
  });
}

// One after the other, in different stages, while what the first took is computed again.
TEST_P(Loss, LossesOverlap) {
  const MarkExpected broken("ledger.closing_stage_lost_an_owner"), owner("ledger.owner_lost");
  twice(run_of({3, 3, 3}), [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kReduceChunk) > 3; }));
    for (std::uint16_t stage = 0; stage < 3; ++stage) {
      swarm.kill(swarm.node(stage, 1));
      swarm.cluster().runtime().run_for(7ms);
      swarm.kill(swarm.node(stage, 2));
      swarm.cluster().runtime().run_for(3ms);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Delay, Loss, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
