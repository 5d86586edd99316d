// A peer that loses its seat keeps a copy of its stage's state. Nothing committed until it has the
// next one: then it fetches nothing, and its bits are compared with its mates'.
#include <array>
#include <memory>

#include "tests/harness/mark_expected.h"
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class KeptState : public Protocol {
 protected:
  // Asked for by anybody, from now on.
  static std::shared_ptr<std::uint64_t> count_state_pieces(Swarm& swarm) {
    auto pieces = std::make_shared<std::uint64_t>(0);
    swarm.rule([pieces](SimNodeId, SimNodeId, const Frame& frame) {
      if (kind_of(frame) == MessageKind::kPieceRequest &&
          parse<wire::PieceRequest>(frame)->blob().has_state())
        ++*pieces;
      return FrameFate{};
    });
    return pieces;
  }
  // No step ends until its reports are let go.
  static void hold_step(Swarm& swarm, SimNodeId reporter) {
    swarm.hold(reporter, kCoordinatorNode, MessageKind::kReport);
  }
  // It loses its seat and is back before the step ends. Returns the pieces asked for until then.
  static std::uint64_t pieces_of_one_back_within_a_step(Swarm& swarm, std::uint16_t stage) {
    swarm.until_committed(2);
    const SimNodeId reporter = swarm.node(1 - stage, 0);
    const SimNodeId lost = swarm.node(stage, 1);
    hold_step(swarm, reporter);
    const auto pieces = count_state_pieces(swarm);
    swarm.cluster().network().cut(kCoordinatorNode, lost);
    EXPECT_TRUE(swarm.until_delivered(MessageKind::kStateOffer, 1, kCoordinatorNode, lost));
    EXPECT_EQ(commits_of(swarm.cluster()), 2U);
    swarm.release(reporter, kCoordinatorNode);
    EXPECT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 5s));
    EXPECT_EQ(swarm.stage_of(lost), stage);
    return *pieces;
  }
  RunConfig slow_run(std::vector<std::uint32_t> peers) const {
    RunConfig config = run_of(std::move(peers));
    config.run.steps = 8;
    return config;
  }
  // One of the first stage's two peers moves to the other stage, which is slower.
  RunConfig run_with_a_move() const {
    RunConfig config = slow_run({2, 1});
    config.run.steps = 24;
    config.balance.moves = true;
    config.balance.period_seconds = 0.1;
    config.net.heartbeat_seconds = 0.02;
    config.wiring.hop_timeout_seconds = 2;
    return config;
  }
  static Change one_slow_last_stage() {
    const SimPeer fast{.forward = 2ms, .backward = 4ms}, slow{.forward = 24ms, .backward = 48ms};
    return on({fast, slow, fast});
  }
};

TEST_P(KeptState, WhoComesBackWithinAStepFetchesNothing) {
  for (std::uint16_t stage = 0; stage < 2; ++stage)
    twice(slow_run({2, 2}),
          [stage](Swarm& swarm) { EXPECT_EQ(pieces_of_one_back_within_a_step(swarm, stage), 0U); });
}

TEST_P(KeptState, AfterACommitItIsFetched) {
  twice(slow_run({2, 2}), [](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
    const SimNodeId lost = swarm.node(1, 1);
    swarm.hold(lost, kCoordinatorNode, MessageKind::kHello);
    const auto pieces = count_state_pieces(swarm);
    swarm.cluster().network().cut(kCoordinatorNode, lost);
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 4; }));
    swarm.release(lost, kCoordinatorNode);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 5s));
    EXPECT_GT(*pieces, 0U);
  });
}

// Each goes back to the stage that it knows, though all are as short.
TEST_P(KeptState, AllItsLinksBreakAndNobodyFetches) {
  twice(slow_run({2, 3, 2}), [](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
    const SimNodeId reporter = swarm.node(2, 0);
    hold_step(swarm, reporter);
    const auto pieces = count_state_pieces(swarm);
    for (std::size_t i = 0; i < swarm.cluster().peers(); ++i)
      swarm.cluster().network().cut(kCoordinatorNode, SimCluster::node_of_peer(i));
    swarm.cluster().runtime().run_for(300ms);
    EXPECT_EQ(commits_of(swarm.cluster()), 2U);
    swarm.release(reporter, kCoordinatorNode);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 4; }, 5s));
    EXPECT_EQ(events(swarm, "new_era"), 0U);
    EXPECT_EQ(*pieces, 0U);
  });
}

// The last peer of a stage dies while another is on its way back to it.
TEST_P(KeptState, WhoKeptAStageThatNobodyServesInheritsIt) {
  for (std::uint16_t stage = 0; stage < 2; ++stage)
    twice(slow_run({2, 2}), [stage](Swarm& swarm) {
      const MarkExpected awaited("kept_heirs.awaited"), inherited("kept_heirs.inherited"),
          kept("state.begins_with_what_it_kept");
      swarm.until_committed(2);
      hold_step(swarm, swarm.node(1 - stage, 0));
      const SimNodeId heir = swarm.node(stage, 1), last = swarm.node(stage, 0);
      swarm.cluster().network().cut(kCoordinatorNode, heir);
      ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_lost") == 1; }, 5s));
      swarm.kill(last);
      ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 30s));
      EXPECT_EQ(swarm.stage_of(heir), stage);
      swarm.release(swarm.node(1 - stage, 0), kCoordinatorNode);
      ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 4; }));
      EXPECT_EQ(events(swarm, "new_era"), 0U);
    });
}

// ... or while another, which was to move, is on its way from it.
TEST_P(KeptState, WhoIsOnItsWayElsewhereInheritsTheStageThatItLeft) {
  twice(run_with_a_move(), one_slow_last_stage(), [](Swarm& swarm) {
    const MarkExpected awaited("kept_heirs.awaited"), inherited("kept_heirs.inherited"),
        kept("state.begins_with_what_it_kept");
    const std::array<SimNodeId, 2> mates = {swarm.node(0, 0), swarm.node(0, 1)};
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_moves") == 1; }, 60s));
    const bool first_moves = events(swarm, "peer_moves", called(swarm, mates[0])) == 1;
    const std::uint64_t commits = commits_of(swarm.cluster());
    swarm.kill(mates[first_moves ? 1 : 0]);
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == commits + 1; }, 60s));
    EXPECT_EQ(swarm.stage_of(mates[first_moves ? 0 : 1]), 0);
    EXPECT_EQ(events(swarm, "new_era"), 0U);
  });
}

// ... or has been given a seat elsewhere, and waits for the state of that one.
TEST_P(KeptState, WhoHasASeatElsewhereIsCalledBackToTheStageThatItLeft) {
  for (const MessageKind held : {MessageKind::kWelcome, MessageKind::kStateOffer})
    twice(run_with_a_move(), one_slow_last_stage(), [held](Swarm& swarm) {
      const MarkExpected called_back("kept_heirs.called_back"), inherited("kept_heirs.inherited"),
          kept("state.begins_with_what_it_kept");
      const std::array<SimNodeId, 2> mates = {swarm.node(0, 0), swarm.node(0, 1)};
      for (const SimNodeId mate : mates) swarm.hold(kCoordinatorNode, mate, held);
      ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_moves") == 1; }, 60s));
      const bool first_moves = events(swarm, "peer_moves", called(swarm, mates[0])) == 1;
      const SimNodeId moved = mates[first_moves ? 0 : 1], last = mates[first_moves ? 1 : 0];
      ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_joined", "incarnation 2") == 1; }));
      const std::uint64_t commits = commits_of(swarm.cluster());
      swarm.kill(last);
      ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_moves") == 2; }, 60s));
      EXPECT_EQ(events(swarm, "peer_moves", "it has what stage 0 has lost"), 1U);
      swarm.release(kCoordinatorNode, moved);
      ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == commits + 1; }, 60s));
      EXPECT_EQ(swarm.stage_of(moved), 0);
      EXPECT_EQ(events(swarm, "new_era"), 0U);
    });
}

// It has joined again already, and waits for a state that nobody can give it any more.
TEST_P(KeptState, WhoWaitsForAStateThatIsGoneBeginsWithItsOwn) {
  twice(slow_run({2, 2}), [](Swarm& swarm) {
    const MarkExpected kept("state.begins_with_what_it_kept");
    swarm.until_committed(2);
    hold_step(swarm, swarm.node(0, 0));
    const SimNodeId heir = swarm.node(1, 1), last = swarm.node(1, 0);
    swarm.hold(last, kCoordinatorNode, MessageKind::kStateFrozen);
    swarm.cluster().network().cut(kCoordinatorNode, heir);
    ASSERT_TRUE(swarm.until_delivered(MessageKind::kFreezeState, 1, kCoordinatorNode, last));
    swarm.kill(last);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 30s));
    swarm.release(swarm.node(0, 0), kCoordinatorNode);
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 4; }));
    EXPECT_EQ(events(swarm, "new_era"), 0U);
  });
}

// Their processes are gone: nobody is waited for.
TEST_P(KeptState, WhereAllAreDeadTheRunGoesBackAtOnce) {
  RunConfig config = slow_run({2, 2});
  config.pipeline.peers = {2, 2};
  twice(config, on(std::vector<SimPeer>(6)), [](Swarm& swarm) {
    const MarkExpected gone("kept_heirs.gone");
    swarm.until_committed(2);
    hold_step(swarm, swarm.node(0, 0));
    const SimNodeId one = swarm.node(1, 1), last = swarm.node(1, 0);
    swarm.kill(one);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_lost") == 1; }, 5s));
    swarm.kill(last);
    EXPECT_TRUE(swarm.until([&] { return events(swarm, "new_era") == 1; }, 3s));
    swarm.release(swarm.node(0, 0), kCoordinatorNode);
  });
}

// No more than the machine says it has to spare.
TEST_P(KeptState, WhatDoesNotFitIsNotKept) {
  SimPeer small;
  small.shadow_memory_bytes = 1;
  twice(slow_run({2, 2}), on({small, small, small, small}),
        [](Swarm& swarm) { EXPECT_GT(pieces_of_one_back_within_a_step(swarm, 0), 0U); });
}

INSTANTIATE_TEST_SUITE_P(Delay, KeptState, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
