// Peers are lost while their stage keeps another: the run goes on and ends with the reference's
// parameters, whatever the moment; the same events give the same trace.
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class Loss : public Protocol {
 protected:
  using Scenario = std::function<void(Swarm&)>;

  // The scenario twice: each run equals the reference, and both are the same run.
  void survives(const RunConfig& config, const Scenario& scenario) {
    survives(config, scenario, [](SimClusterOptions&) {});
  }
  void survives(const RunConfig& config, const Scenario& scenario,
                const std::function<void(SimClusterOptions&)>& change) {
    std::optional<std::uint64_t> first;
    for (int run = 0; run < 2; ++run) {
      SimClusterOptions options = options_for(config);
      change(options);
      Swarm swarm(std::move(options));
      swarm.until_started();
      scenario(swarm);
      if (testing::Test::HasFatalFailure()) return;
      swarm.finish();
      if (testing::Test::HasFailure()) return;
      expect_equal(swarm.cluster().parameters(), reference_of(config));
      const std::uint64_t hash = swarm.cluster().trace_hash();
      EXPECT_EQ(first.value_or(hash), hash);
      first = hash;
    }
  }
  static std::vector<std::string> lost(Swarm& swarm) {
    std::vector<std::string> details;
    for (const EventRecord& event : *swarm.cluster().journal().events(1000))
      if (event.kind == "peer_lost") details.push_back(event.detail);
    return details;
  }
  static void kill(Swarm& swarm, SimNodeId node) { swarm.cluster().network().kill(node); }
};

TEST_P(Loss, AKilledPeerOfAnyStageIsMissedForLessThanATenthOfASecond) {
  for (std::uint16_t stage = 0; stage < 3; ++stage)
    survives(run_of({2, 2, 2}), [&](Swarm& swarm) {
      ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
      kill(swarm, swarm.node(stage, 1));
      EXPECT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kPeerLost) >= 5; }, 100ms));
      EXPECT_EQ(lost(swarm).size(), 1U);
    });
}

TEST_P(Loss, AFrozenPeerIsFencedWithinThreeSecondsAtDefaults) {
  RunConfig config = run_of({2, 2});
  config.net.peer_silence_seconds = NetSection{}.peer_silence_seconds;
  for (std::uint16_t stage = 0; stage < 2; ++stage)
    survives(config, [&](Swarm& swarm) {
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
  survives(
      config,
      [&](Swarm& swarm) {
        swarm.until([&] { return commits_of(swarm.cluster()) == 2; });
        EXPECT_TRUE(lost(swarm).empty());
      },
      [](SimClusterOptions& options) {
        options.peers = {SimPeer{}, {.forward = 4s, .backward = 8s}, SimPeer{}};
        options.link.jitter = 80ms;
      });
}

// Its control thread answers, its device ends nothing: whoever waits for it goes elsewhere, and it
// is fenced after two of the times that one hop's work may take.
TEST_P(Loss, APeerThatAnswersButDoesNotFinishIsFenced) {
  RunConfig config = run_of({1, 2});
  config.wiring.hop_timeout_seconds = 2;
  survives(
      config,
      [&](Swarm& swarm) {
        ASSERT_TRUE(swarm.until([&] { return !lost(swarm).empty(); }, 20s));
        EXPECT_NE(lost(swarm)[0].find("its device has ended nothing"), std::string::npos);
      },
      [](SimClusterOptions& options) {
        options.peers = {SimPeer{}, {.forward = 100h, .backward = 100h}, SimPeer{}};
      });
}

// B has added, and its gradient has gone on; its report dies with it. Nobody holds that try any
// more, and the ledger has never heard of it.
TEST_P(Loss, AReportIsLostAfterItsGradientHasGoneOn) {
  survives(run_of({1, 2, 1}), [&](Swarm& swarm) {
    const SimNodeId a = swarm.node(0, 0), b = swarm.node(1, 0);
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
    swarm.hold(b, kCoordinatorNode, MessageKind::kReport);
    const std::uint64_t before = swarm.delivered(MessageKind::kGradient, b, a);
    ASSERT_TRUE(
        swarm.until([&] { return swarm.delivered(MessageKind::kGradient, b, a) > before + 1; }));
    kill(swarm, b);
  });
}

// A source is lost with everything it started.
TEST_P(Loss, ASourceIsLostWithAllUnderWay) {
  RunConfig config = run_of({2, 1, 1});
  config.pipeline.in_flight = 4;
  survives(config, [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kForward) > 10; }));
    kill(swarm, swarm.node(0, 1));
  });
}

TEST_P(Loss, APeerIsLostDuringAnEvaluation) {
  survives(
      run_of({2, 2, 2}),
      [&](Swarm& swarm) {
        std::optional<SimNodeId> at;
        swarm.watch([&](SimNodeId, SimNodeId to, const Frame& frame) {
          if (at || kind_of(frame) != MessageKind::kForward || swarm.stage_of(to) != 1) return;
          if (attempt_of(frame)->microbatch.phase.kind == PhaseKind::kEval) at = to;
        });
        ASSERT_TRUE(swarm.until([&] { return at.has_value(); }));
        kill(swarm, *at);
        swarm.until([&] { return swarm.cluster().outcome().has_value(); });
      },
      [](SimClusterOptions& options) { options.eval_sequences = 16; });
}

// What a seal asks of its owner dies with it.
TEST_P(Loss, AnOwnerIsLostBetweenSealAndAveraging) {
  survives(run_of({2, 3, 2}), [&](Swarm& swarm) {
    const SimNodeId b = swarm.node(1, 1);
    std::uint64_t seals = 0;
    swarm.watch([&](SimNodeId, SimNodeId to, const Frame& frame) {
      seals += to == b && kind_of(frame) == MessageKind::kSeal;
    });
    ASSERT_TRUE(swarm.until([&] { return seals == 2; }));
    kill(swarm, b);
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
      survives(config, [&](Swarm& swarm) {
        const SimNodeId gone = swarm.node(stage, 1);
        ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
        const std::uint64_t before = swarm.delivered(MessageKind::kReduceChunk);
        ASSERT_TRUE(swarm.until(
            [&] { return swarm.delivered(MessageKind::kReduceChunk) >= before + chunks; }));
        kill(swarm, gone);
      });
    }
}

// It has the result and said so; its mates have it too, or one of them fetches it.
TEST_P(Loss, AMemberDiesAfterReduceBeforeCommit) {
  survives(run_of({2, 2}), [&](Swarm& swarm) {
    const SimNodeId gone = swarm.node(1, 1), mate = swarm.node(1, 0);
    swarm.hold(mate, kCoordinatorNode, MessageKind::kReduced);
    ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kReduced, gone) > 0; }));
    kill(swarm, gone);
    swarm.cluster().runtime().run_for(50ms);
    swarm.release(mate, kCoordinatorNode);
  });
}

// One has the result; the slice of the lost one never reached the other, who fetches the whole.
TEST_P(Loss, AResultThatOneHolderHasOwnsItsContributions) {
  RunConfig config = run_of({1, 3});
  config.model.d_model = 48;
  survives(config, [&](Swarm& swarm) {
    const SimNodeId gone = swarm.node(1, 2), holder = swarm.node(1, 0), late = swarm.node(1, 1);
    swarm.rule([&, gone, late](SimNodeId from, SimNodeId to, const Frame& frame) {
      const bool lost = from == gone && to == late && kind_of(frame) == MessageKind::kReduceChunk &&
                        parse<wire::ReduceChunk>(frame)->gather();
      return lost ? FrameFate{.kind = FrameFate::Kind::kHold, .delay = {}} : FrameFate{};
    });
    ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kReduced, holder) > 0; }));
    kill(swarm, gone);
    ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kReduced, late) > 0; }));
    EXPECT_GT(swarm.delivered(MessageKind::kPiece, holder, late), 0U);
    EXPECT_EQ(swarm.delivered(MessageKind::kReopen), 0U) << "nothing was computed again";
  });
}

// The only holder goes before anybody has fetched from it: its contributions are computed again.
TEST_P(Loss, TheLastHolderOfAResultIsLost) {
  RunConfig config = run_of({1, 3});
  config.model.d_model = 48;
  survives(config, [&](Swarm& swarm) {
    const SimNodeId gone = swarm.node(1, 2), holder = swarm.node(1, 0), late = swarm.node(1, 1);
    swarm.rule([&, gone, late](SimNodeId from, SimNodeId to, const Frame& frame) {
      const bool lost = from == gone && to == late && kind_of(frame) == MessageKind::kReduceChunk &&
                        parse<wire::ReduceChunk>(frame)->gather();
      return lost ? FrameFate{.kind = FrameFate::Kind::kHold, .delay = {}} : FrameFate{};
    });
    ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kReduced, holder) > 0; }));
    kill(swarm, gone);
    kill(swarm, holder);
    ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kReopen) > 0; }));
  });
}

TEST_P(Loss, AMemberIsLostDuringTheCommit) {
  for (std::uint16_t stage = 0; stage < 2; ++stage)
    survives(run_of({2, 2}), [&](Swarm& swarm) {
      const SimNodeId gone = swarm.node(stage, 0);
      swarm.hold(kCoordinatorNode, gone, MessageKind::kCommit);
      ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kCommit) > 0; }));
      kill(swarm, gone);
    });
}

// A member of one of the two stages that share the embedding: its group and the shared one go on
// without it.
TEST_P(Loss, AMemberIsLostWhileTheTiedEmbeddingIsAveraged) {
  for (const std::uint16_t stage : {std::uint16_t{0}, std::uint16_t{2}})
    for (const std::uint64_t chunks : {1U, 3U, 6U}) {
      RunConfig config = run_of({2, 1, 2});
      config.model.tied_embeddings = true;
      survives(config, [&](Swarm& swarm) {
        ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
        const std::uint64_t before = swarm.delivered(MessageKind::kReduceChunk);
        ASSERT_TRUE(swarm.until(
            [&] { return swarm.delivered(MessageKind::kReduceChunk) >= before + chunks; }));
        kill(swarm, swarm.node(stage, 1));
      });
    }
}

// One after the other, in different stages, while what the first took is computed again.
TEST_P(Loss, LossesOverlap) {
  survives(run_of({3, 3, 3}), [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kReduceChunk) > 3; }));
    for (std::uint16_t stage = 0; stage < 3; ++stage) {
      kill(swarm, swarm.node(stage, 1));
      swarm.cluster().runtime().run_for(7ms);
      kill(swarm, swarm.node(stage, 2));
      swarm.cluster().runtime().run_for(3ms);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Delay, Loss, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
