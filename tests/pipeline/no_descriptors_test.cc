// A process that can open no more connections: each dial of its own fails at once, within one
// instant of virtual time, so that whoever tries again at once tries for ever.
#include <set>

#include <gtest/gtest.h>

#include "pipeline/protocol/knobs.h"
#include "sim/cluster/fake_stage_model.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/swarm_harness.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class NoDescriptors : public testing::TestWithParam<std::uint32_t> {
 protected:
  RunConfig run_of(std::vector<std::uint32_t> peers) const {
    return small_run(std::move(peers), GetParam());
  }
};

// Its state is offered, and it reaches nobody who has it; others are not troubled.
TEST_P(NoDescriptors, AJoinerAsksForItsStateAtAPace) {
  RunConfig config = run_of({1, 2});
  config.run.steps = 40;
  SimClusterOptions options = swarm_of(config, make_fake_model);
  options.peers.assign(3, {.forward = 100ms, .backward = 200ms});
  Swarm swarm(std::move(options));
  swarm.until_committed(2);
  const SimNodeId joiner = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kWelcome, 1, kCoordinatorNode, joiner));
  swarm.cluster().network().fill(joiner, true);
  const MarkExpected out_of_reach("piece_fetch.holder_out_of_reach");
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kStateOffer, 1, kCoordinatorNode, joiner));
  swarm.cluster().runtime().run_for(5s);
  EXPECT_EQ(events(swarm, "peer_seated"), 0U);
  swarm.cluster().network().fill(joiner, false);
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 5s)) << history(swarm);
  const RunOutcome outcome = swarm.end();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.sentence << "\n" << history(swarm);
  EXPECT_EQ(events(swarm, "peer_lost"), 0U) << history(swarm);
  EXPECT_EQ(swarm.cluster().parameters(), one_each(config));
}

// It takes no connection, and has nothing to send itself: all that others know is that they can't
// reach it. Where they send their sums is one of them, each in its turn here.
TEST_P(NoDescriptors, AMemberThatNobodyReachesIsLetGoAndNoneOfTheOthers) {
  RunConfig config = run_of({4});
  config.run.steps = 12;
  const MarkExpected many("broken_links.one_end_of_many");
  for (std::size_t i = 0; i < 4; ++i) {
    Swarm swarm(swarm_of(config, make_fake_model));
    std::optional<SimNodeId> full, last;
    std::string who;
    swarm.watch([&](SimNodeId from, SimNodeId, const Frame& frame) {
      if (full || from != kCoordinatorNode || kind_of(frame) != MessageKind::kLeases) return;
      full = swarm.node(0, i);
      last = swarm.node(0, 3);
      who = called(swarm, *full);
      swarm.cluster().network().fill(*full, true);
    });
    // The one that came last is heard first.
    swarm.rule([&](SimNodeId from, SimNodeId, const Frame& frame) -> FrameFate {
      if (from == last || kind_of(frame) != MessageKind::kRoundBroken) return {};
      return {.kind = FrameFate::Kind::kDelay, .delay = knobs().round_retry_delay / 2};
    });
    swarm.until_started();
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }, 300s))
        << history(swarm);
    swarm.cluster().network().fill(*full, false);
    const RunOutcome outcome = swarm.end();
    ASSERT_EQ(outcome.exit_code, 0) << outcome.sentence << "\n" << history(swarm);
    EXPECT_EQ(events(swarm, "peer_lost"), 1U) << history(swarm);
    EXPECT_EQ(events(swarm, "peer_lost", who), 1U) << history(swarm);
    EXPECT_EQ(swarm.cluster().parameters(), one_each(config));
  }
}

// Its links to those who came before it stand: a newcomer is all that does not reach it.
// (With a delay its link to that one stands already, from an averaging before.)
class NoDescriptorsForANewcomer : public NoDescriptors {};

TEST_P(NoDescriptorsForANewcomer, ItIsNotLetGoInThePlaceOfAMemberThatTakesNoConnection) {
  RunConfig config = run_of({3});
  config.run.steps = 100;
  const MarkExpected not_reached("commit_round.not_reached_from_here");
  Swarm swarm(swarm_of(config, make_fake_model));
  swarm.until_committed(2);
  // The one it averages with is the last of the members; its state comes from another.
  const SimNodeId mate = swarm.node(0, 2);
  swarm.rule([mate](SimNodeId from, SimNodeId, const Frame& frame) -> FrameFate {
    if (from != mate || kind_of(frame) != MessageKind::kStateFrozen) return {};
    return {.kind = FrameFate::Kind::kDelay, .delay = 100ms};
  });
  const SimNodeId joiner = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
  std::set<SimNodeId> linked;
  swarm.watch([&](SimNodeId from, SimNodeId to, const Frame&) {
    if (to == joiner) linked.insert(from);
  });
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kPiece, 1));  // of the state that it fetches
  const SimNodeId full = mate;
  ASSERT_FALSE(linked.contains(full));
  swarm.cluster().network().fill(full, true);
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_lost") > 0; }, 300s)) << history(swarm);
  EXPECT_EQ(events(swarm, "peer_lost", called(swarm, full)), 1U) << history(swarm);
  swarm.cluster().network().fill(full, false);
  const RunOutcome outcome = swarm.end();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.sentence << "\n" << history(swarm);
  EXPECT_EQ(events(swarm, "peer_lost"), 1U) << history(swarm);
  EXPECT_EQ(swarm.cluster().parameters(), one_each(config));
}

// The last of its stage lives, and its state is nowhere else: the run waits until it has room
// again, for as long as going back would cost.
TEST_P(NoDescriptorsForANewcomer, TheLastOfItsStageIsWaitedFor) {
  RunConfig config = run_of({1, 3});
  config.run.steps = 100;
  config.model.tied_embeddings = true;
  for (const bool has_room_in_time : {true, false}) {
    config.run.wait_seconds = has_room_in_time ? 60 : 1;
    config.net.peers_wait_seconds = 60;
    const MarkExpected bears("commit_round.bears_with_the_last_one");
    Swarm swarm(swarm_of(config, make_fake_model));
    swarm.until_committed(2);
    const SimNodeId last = swarm.node(0, 0);
    swarm.kill(swarm.node(1, 2));
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_lost") == 1; }, 60s));
    swarm.cluster().add_peer({});
    swarm.cluster().network().fill(last, true);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "waiting") > 0; }, 300s)) << history(swarm);
    const std::uint64_t commits = commits_of(swarm.cluster());
    swarm.cluster().runtime().run_for(has_room_in_time ? 500ms : 60s);
    EXPECT_EQ(events(swarm, "new_era"), has_room_in_time ? 0U : 1U) << history(swarm);
    swarm.cluster().network().fill(last, false);
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) > commits + 2; }, 300s))
        << history(swarm);
    EXPECT_EQ(events(swarm, "peer_lost") > 1, !has_room_in_time) << history(swarm);
    swarm.finish();
  }
}

INSTANTIATE_TEST_SUITE_P(NoDelay, NoDescriptorsForANewcomer, testing::Values(0U));
INSTANTIATE_TEST_SUITE_P(Delay, NoDescriptors, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
