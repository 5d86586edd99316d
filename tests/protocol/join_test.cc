// Seats taken after the start: fenced peers that come back, and peers that come late. The run goes
// on while they fetch their stage's state, and ends with the reference's parameters.
#include "tests/harness/mark_expected.h"
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class Join : public Protocol {
 protected:
  // What the node contributed is in reports that were delivered.
  static std::uint64_t reports(Swarm& swarm, SimNodeId node) {
    return swarm.delivered(MessageKind::kReport, node, kCoordinatorNode);
  }
  RunConfig long_run(std::vector<std::uint32_t> peers) const {
    RunConfig config = run_of(std::move(peers));
    config.run.steps = 30;
    config.wiring.hop_timeout_seconds = 2;
    return config;
  }
};

TEST_P(Join, AFencedPeerThatWakesComesBackByItself) {
  for (std::uint16_t stage = 0; stage < 2; ++stage) {
    RunConfig config = long_run({2, 2});
    config.net.peer_silence_seconds = 0.05;
    config.net.heartbeat_seconds = 0.02;
    twice(config, [&](Swarm& swarm) {
      const SimNodeId node = swarm.node(stage, 1);
      ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
      swarm.freeze(node);
      ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_lost") == 1; }));
      const std::uint64_t before = commits_of(swarm.cluster());
      ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) > before + 2; }));
      swarm.thaw(node);
      ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 5s));
      const Seat seat = swarm.cluster().peer(node - 1).seat();
      EXPECT_EQ(seat.incarnation.value, 2U);
      EXPECT_EQ(seat.stage.value, stage);
      const std::uint64_t said = reports(swarm, node);
      swarm.until([&] { return reports(swarm, node) > said; });
      EXPECT_GT(reports(swarm, node), said) << "it serves again";
    });
  }
}

// The coordinator's connection breaks, the peer lives: it is fenced and comes back.
TEST_P(Join, APeerWhoseCoordinatorLinkBreaksComesBack) {
  twice(long_run({2, 2}), [&](Swarm& swarm) {
    const SimNodeId node = swarm.node(1, 1);
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
    swarm.cluster().network().cut(kCoordinatorNode, node);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 5s));
  });
}

TEST_P(Join, ALateJoinerServes) {
  const RunConfig config = long_run({1, 1});
  twice(config, [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }));
    const SimNodeId first = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
    const SimNodeId second = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 2; }, 5s));
    EXPECT_NE(swarm.stage_of(first), swarm.stage_of(second));
    swarm.until([&] { return reports(swarm, first) > 0 && reports(swarm, second) > 0; });
    EXPECT_GT(reports(swarm, first), 0U);
    EXPECT_GT(reports(swarm, second), 0U);
  });
}

// It has the version before as well, and needs no commit.
TEST_P(Join, ANewcomerServesTheOpenStep) {
  RunConfig config = long_run({1, 1});
  config.batch.batch = 64;
  config.run.steps = 8;
  twice(config, [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }));
    const SimNodeId joiner = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
    ASSERT_TRUE(swarm.until([&] { return reports(swarm, joiner) > 0; }, 5s));
    EXPECT_EQ(events(swarm, "peer_seated"), 1U);
    EXPECT_EQ(commits_of(swarm.cluster()), 3U);
  });
}

// What it says it holds is not what its mate holds: it is not seated, and fetches it anew.
TEST_P(Join, AJoinerThatHoldsOtherBitsIsNotSeated) {
  const RunConfig config = long_run({1, 2});
  const MarkExpected wrong("settling.wrong_state_fetched");
  twice(config, [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }));
    const SimNodeId joiner = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
    auto changed = std::make_shared<bool>(false);
    swarm.rule([=](SimNodeId from, SimNodeId, const Frame& frame) -> FrameFate {
      if (from != joiner || kind_of(frame) != MessageKind::kReady || *changed) return {};
      *changed = true;
      auto ready = *parse<wire::Ready>(frame);
      ready.set_state_digest(ready.state_digest() ^ 1);
      const_cast<Frame&>(frame).meta = ready.SerializeAsString();
      return {};
    });
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 5s));
    EXPECT_EQ(events(swarm, "peer_lost", "the state it fetched is not the one of its stage"), 1U);
  });
}

// Its state stays on the way for many steps: nobody waits, and the commits since are applied.
TEST_P(Join, TrainingGoesOnWhileAJoinerFetches) {
  const RunConfig config = long_run({1, 2});
  twice(config, [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }));
    const std::size_t place = swarm.cluster().add_peer({});
    const SimNodeId joiner = SimCluster::node_of_peer(place);
    const auto hold = std::make_shared<bool>(true);
    swarm.rule([hold, joiner](SimNodeId, SimNodeId to, const Frame& frame) {
      const bool state = *hold && to == joiner && kind_of(frame) == MessageKind::kPiece &&
                         parse<wire::Piece>(frame)->blob().has_state();
      return state ? FrameFate{.kind = FrameFate::Kind::kHold, .delay = {}} : FrameFate{};
    });
    ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kPieceRequest) > 0; }));
    const std::uint64_t begun = commits_of(swarm.cluster());
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == begun + 8; }));
    EXPECT_EQ(events(swarm, "peer_seated"), 0U);
    *hold = false;
    for (SimNodeId mate = 1; mate < joiner; ++mate) swarm.cluster().network().release(mate, joiner);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 5s));
    EXPECT_LT(commits_of(swarm.cluster()), begun + 14);
  });
}

// Whoever it fetches from is lost: it goes on with the others, or starts over.
TEST_P(Join, AHolderIsLostWhileAJoinerFetches) {
  const RunConfig config = long_run({1, 3});
  for (const std::size_t lost : {1U, 2U})
    twice(config, [&](Swarm& swarm) {
      const SimNodeId mates[] = {swarm.node(1, 0), swarm.node(1, 1), swarm.node(1, 2)};
      ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }));
      const SimNodeId joiner = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
      const SimNodeId other = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
      for (const SimNodeId mate : mates)
        for (const SimNodeId to : {joiner, other})
          if (mate != mates[2]) swarm.hold(mate, to, MessageKind::kPiece);
      ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kPieceRequest) > 0; }));
      for (std::size_t i = 0; i < lost; ++i) swarm.kill(mates[i]);
      if (lost == 1) {
        swarm.release(mates[1], joiner);
        swarm.release(mates[1], other);
      }
      ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 2; }, 10s));
    });
}

// It takes its seat while a step is averaged, in which it has no part, and a member of that round
// is lost: the step is computed again, with the newcomer on the way.
TEST_P(Join, AStepThatANewcomerMissedIsReopened) {
  const RunConfig config = long_run({2, 2});
  for (const Duration later : {0ms, 1ms, 2ms}) {
    const MarkExpected broken("ledger.closing_stage_lost_an_owner");
    const MarkExpected reopened("open_phases.reopened");
    twice(config, [&](Swarm& swarm) {
      const SimNodeId gone = swarm.node(0, 1);
      ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }));
      swarm.cluster().add_peer({});
      swarm.cluster().add_peer({});
      ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 2; }, 5s));
      // Nobody has the result without its part.
      for (const SimNodeId mate : swarm.serving(0))
        if (mate != gone) swarm.hold(gone, mate, MessageKind::kReduceChunk);
      swarm.hold(gone, kCoordinatorNode, MessageKind::kReduced);
      ASSERT_TRUE(swarm.until_delivered(MessageKind::kSeal, 1, kCoordinatorNode, gone));
      swarm.cluster().runtime().run_for(later);
      swarm.kill(gone);
    });
  }
}

// It is seated while a round of one member is averaged: it fetches the result before the commit, so
// that it is not lost with that member.
TEST_P(Join, ANewcomerHasTheResultOfTheRoundItCameInto) {
  twice(long_run({1, 2}), [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }));
    const SimNodeId only = swarm.node(0, 0);
    const SimNodeId others[] = {swarm.node(1, 0), swarm.node(1, 1)};
    for (const SimNodeId other : others) swarm.hold(other, kCoordinatorNode, MessageKind::kReduced);
    const std::uint64_t said = swarm.delivered(MessageKind::kReduced, only);
    ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kReduced, only) > said; }));
    const SimNodeId joiner = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 5s));
    ASSERT_EQ(swarm.stage_of(joiner), 0U);
    ASSERT_TRUE(
        swarm.until([&] { return swarm.delivered(MessageKind::kReduced, joiner) == 1; }, 5s));
    EXPECT_EQ(commits_of(swarm.cluster()), 3U);
    swarm.kill(only);
    for (const SimNodeId other : others) swarm.release(other, kCoordinatorNode);
  });
}

// Nothing has begun: its seat is free again, and the next one takes it.
TEST_P(Join, APeerLostBeforeTheStartIsReplaced) {
  const RunConfig config = run_of({1, 2});
  Swarm swarm(options_for(config));
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_joined") == 2; }));
  swarm.kill(SimCluster::node_of_peer(0));
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_lost") == 1; }));
  swarm.cluster().runtime().run_for(1s);
  EXPECT_EQ(events(swarm, "start"), 0U);
  swarm.cluster().add_peer({});
  expect_reference(swarm, config);
}

// It sits beyond what its stage needs, and another stage lacks one: all that the run wants are
// there.
TEST_P(Join, APeerToSpareTakesTheSeatOfOneLostBeforeTheStart) {
  const RunConfig config = run_of({1, 2});
  Swarm swarm(options_for(config));
  const SimNodeId gone = SimCluster::node_of_peer(2);
  swarm.hold(gone, kCoordinatorNode, MessageKind::kReady);
  swarm.cluster().runtime().run_for(1s);
  ASSERT_EQ(swarm.stage_of(gone), 1);
  const std::size_t spare = swarm.cluster().add_peer({});
  swarm.cluster().runtime().run_for(1s);
  ASSERT_EQ(swarm.stage_of(SimCluster::node_of_peer(spare)), 0);
  swarm.kill(gone);
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "start") == 1; }, 5s));
  EXPECT_EQ(events(swarm, "peer_moves", "stage 1 lacks a peer"), 1U);
  swarm.finish();
  expect_equal(swarm.cluster().parameters(), reference_of(config));
}

// A notice: it hands in what it holds and is gone within the step, nothing is computed twice.
TEST_P(Join, APeerThatDrainsLeavesWithinItsNotice) {
  for (std::uint16_t stage = 0; stage < 2; ++stage)
    twice(long_run({2, 2}), [&](Swarm& swarm) {
      ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }));
      swarm.cluster().runtime().run_for(11ms);
      const SimNodeId node = swarm.node(stage, 1);
      const std::uint64_t before = commits_of(swarm.cluster());
      swarm.cluster().peer(node - 1).request_drain(30s);
      ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_left") == 1; }, 30s));
      EXPECT_LE(commits_of(swarm.cluster()), before + 3);
      EXPECT_EQ(events(swarm, "peer_lost"), 0U);
      EXPECT_EQ(swarm.delivered(MessageKind::kReopen), 0U);
    });
}

// The last of its stage may not go before another holds the stage's state.
TEST_P(Join, TheLastOfAStageDrainsOnceAnotherHasItsState) {
  twice(long_run({1, 1}), [&](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
    const SimNodeId node = swarm.node(0, 0);
    swarm.cluster().peer(node - 1).request_drain(30s);
    swarm.cluster().runtime().run_for(200ms);
    EXPECT_EQ(events(swarm, "peer_left"), 0U);
    swarm.cluster().add_peer({});
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_left") == 1; }, 30s));
    EXPECT_EQ(events(swarm, "peer_seated"), 1U);
  });
}

INSTANTIATE_TEST_SUITE_P(Delay, Join, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
