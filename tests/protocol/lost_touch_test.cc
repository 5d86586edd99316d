// The coordinator loses touch with peers that live: the links to it break, or it is cut off. What
// they hold is gone on with; a state is given up only where nobody holds it any more.
#include <array>

#include "pipeline/protocol/knobs.h"
#include "tests/harness/mark_expected.h"
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class LostTouch : public Protocol {
 protected:
  static RunConfig quick(RunConfig config) {
    config.run.steps = 8;
    config.net.heartbeat_seconds = 0.1;
    config.net.peer_silence_seconds = 0.5;
    config.net.collect_seconds = 2;
    return config;
  }
  static void each_peer(Swarm& swarm, const std::function<void(SimNodeId)>& act) {
    for (std::size_t i = 0; i < swarm.cluster().peers(); ++i) act(SimCluster::node_of_peer(i));
  }
  static Change slow_machines() {
    return on(std::vector<SimPeer>(4, {.forward = 1s, .backward = 2s}));
  }
  static SimNodeId newcomer_without_its_welcome(Swarm& swarm) {
    swarm.until_started();
    const SimNodeId newcomer = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
    swarm.hold(kCoordinatorNode, newcomer, MessageKind::kWelcome);
    return newcomer;
  }
  static void cut_off(Swarm& swarm) {
    each_peer(swarm, [&](SimNodeId node) {
      swarm.cluster().network().block(kCoordinatorNode, node);
      swarm.cluster().network().block(node, kCoordinatorNode);
    });
  }
  static void reconnect(Swarm& swarm) {
    each_peer(swarm, [&](SimNodeId node) {
      swarm.cluster().network().unblock(kCoordinatorNode, node);
      swarm.cluster().network().unblock(node, kCoordinatorNode);
    });
  }
};

// As when an address translation forgets them.
TEST_P(LostTouch, AllItsLinksBreakAtOnce) {
  twice(quick(run_of({2, 1, 2})), [](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
    ASSERT_TRUE(swarm.until_delivered(MessageKind::kGradient, 2));
    each_peer(swarm,
              [&](SimNodeId node) { swarm.cluster().network().cut(kCoordinatorNode, node); });
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 4; }, 10s));
    EXPECT_EQ(events(swarm, "lost_touch"), 1U);
    EXPECT_EQ(events(swarm, "new_era"), 0U);
  });
}

TEST_P(LostTouch, TheLinkToAStagesLastPeerBreaks) {
  for (std::uint16_t stage = 0; stage < 3; ++stage)
    twice(quick(run_of({1, 1, 1})), [stage](Swarm& swarm) {
      ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
      swarm.cluster().network().cut(kCoordinatorNode, swarm.node(stage, 0));
      ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 4; }, 10s));
      EXPECT_EQ(events(swarm, "peer_lost"), 0U);
      EXPECT_EQ(events(swarm, "new_era"), 0U);
    });
}

// A shadow could serve it, by leaving its own stage: what lives is better taken back.
TEST_P(LostTouch, TheLinkToAStagesLastPeerBreaksAndAShadowStandsBy) {
  RunConfig config = quick(run_of({2, 1}));
  config.balance.shadows = {.count = 1};
  twice(config, [](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "shadow_ready") >= 1; }, 10s));
    swarm.cluster().network().cut(kCoordinatorNode, swarm.node(1, 0));
    const std::uint64_t before = commits_of(swarm.cluster());
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) >= before + 2; }, 10s));
    EXPECT_EQ(events(swarm, "lost_touch"), 1U);
    EXPECT_EQ(events(swarm, "take_over"), 0U);
    EXPECT_EQ(events(swarm, "new_era"), 0U);
  });
}

// Its seat is in the journal, and it has not heard of it: it is all that is left of its stage.
TEST_P(LostTouch, AJoinerIsSeatedAsTheCoordinatorDies) {
  twice(quick(run_of({1, 1})), [](Swarm& swarm) {
    const MarkExpected seated("stage.seated_by_another_coordinator");
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
    const std::array<SimNodeId, 2> serving = {swarm.node(0, 0), swarm.node(1, 0)};
    const SimNodeId joiner = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
    swarm.hold(kCoordinatorNode, joiner, MessageKind::kOpenPhase);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 10s));
    swarm.cluster().kill_coordinator();
    swarm.kill(serving[swarm.stage_of(joiner)]);
    swarm.release(kCoordinatorNode, joiner);
    swarm.cluster().restart_coordinator();
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) >= 4; }, 20s))
        << history(swarm);
    EXPECT_EQ(events(swarm, "new_era"), 0U);
  });
}

// ... and before the first step is committed: what it holds everybody can make, and it is its seat.
TEST_P(LostTouch, AJoinerIsSeatedBeforeTheFirstStepAsTheCoordinatorDies) {
  const RunConfig config = quick(run_of({1, 1}));
  const SimPeer slow{.forward = 1s, .backward = 2s};
  twice(config, on({slow, slow}), [](Swarm& swarm) {
    const MarkExpected seated("stage.seated_by_another_coordinator");
    swarm.until_started();
    const std::array<SimNodeId, 2> serving = {swarm.node(0, 0), swarm.node(1, 0)};
    const SimNodeId joiner = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
    swarm.hold(kCoordinatorNode, joiner, MessageKind::kOpenPhase);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 10s));
    ASSERT_EQ(commits_of(swarm.cluster()), 0U);
    swarm.cluster().kill_coordinator();
    swarm.kill(serving[swarm.stage_of(joiner)]);
    swarm.release(kCoordinatorNode, joiner);
    swarm.cluster().restart_coordinator();
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) >= 2; }, 600s))
        << history(swarm);
    EXPECT_EQ(events(swarm, "peer_lost", "came back over a new connection"), 0U);
    EXPECT_EQ(events(swarm, "new_era"), 0U);
  });
}

// Its process is gone: its address refuses, and nothing is waited for.
TEST_P(LostTouch, AStagesLastPeerThatIsGoneIsNotWaitedFor) {
  RunConfig config = quick(run_of({2, 1}));
  config.net.collect_seconds = 3600;
  twice(config, [](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
    swarm.kill_stage(1);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "new_era") == 1; }, 100ms));
    EXPECT_EQ(events(swarm, "lost_touch"), 0U);
  });
}

// Longer than a peer may be silent, and than a coordinator that was begun again waits for it.
TEST_P(LostTouch, ItIsCutOffFromEverybodyForAWhile) {
  for (const Duration time : {1s, 10s, 200s})
    twice(quick(run_of({2, 2})), [time](Swarm& swarm) {
      ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
      cut_off(swarm);
      swarm.cluster().runtime().run_for(time);
      EXPECT_EQ(events(swarm, "peer_lost"), 0U);
      reconnect(swarm);
      ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) >= 4; }, 20s));
      EXPECT_GE(events(swarm, "lost_touch"), 1U);
      EXPECT_EQ(events(swarm, "new_era"), 0U);
    });
}

// Heartbeats of many peers come so seldom that it has noticed nothing, and their links to it have
// ended unacknowledged.
TEST_P(LostTouch, ItHearsNobodyForLessThanThinnedHeartbeatsMayTake) {
  Knobs thinned = knobs();
  thinned.heartbeats_per_second = 1;
  thinned.heartbeat_period_max = 60s;
  const TurnedKnobs turned(thinned);
  RunConfig config = run_of({16, 16});
  config.run.steps = 12;
  config.batch.batch = 64 * config.batch.microbatch;  // each is heard of all the time
  config.net.heartbeat_seconds = 5;
  config.net.peer_silence_seconds = 0;  // by the heartbeats
  const SimPeer slow{.forward = 1s, .backward = 2s};
  twice(config, on(std::vector<SimPeer>(32, slow)), [](Swarm& swarm) {
    swarm.until_started();
    swarm.cluster().runtime().run_for(80s);  // by then all have heard how seldom they are to beat
    swarm.cluster().network().silence(kCoordinatorNode, false, true);
    swarm.cluster().runtime().run_for(31s);
    EXPECT_EQ(events(swarm, "lost_touch"), 0U);
    const MarkExpected deaf("arrivals.after_a_deaf_time");
    swarm.cluster().network().unsilence(kCoordinatorNode);
    const std::uint64_t before = commits_of(swarm.cluster());
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) >= before + 2; }, 600s));
    EXPECT_EQ(events(swarm, "peer_lost"), 0U) << history(swarm);
  });
}

// It hears everybody, and nothing that it says arrives, until its links end unacknowledged.
TEST_P(LostTouch, NothingThatItSaysArrivesForAWhile) {
  twice(quick(run_of({2, 2})), [](Swarm& swarm) {
    const MarkExpected unacknowledged("reign.unacknowledged");
    const MarkExpected waits("recovery.waits_for_anybody");
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
    swarm.cluster().network().silence(kCoordinatorNode, true, false);
    swarm.cluster().runtime().run_for(150s);
    swarm.cluster().network().unsilence(kCoordinatorNode);
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) >= 4; }, 20s));
    EXPECT_EQ(events(swarm, "peer_lost"), 0U);
    EXPECT_EQ(events(swarm, "new_era"), 0U);
  });
}

// ... while a stage's last peer has been silent for long already: that it is waited for says
// nothing of the others, whose links all end at once.
TEST_P(LostTouch, NothingThatItSaysArrivesWhileItWaitsForAStage) {
  RunConfig config = quick(run_of({1, 3}));
  config.net.peers_wait_seconds = 3600;
  twice(config, [](Swarm& swarm) {
    const MarkExpected waits("vigil.waits");
    swarm.until_started();
    const SimNodeId silent = swarm.node(0, 0);
    swarm.freeze(silent);
    swarm.cluster().runtime().run_for(20s);
    swarm.cluster().network().silence(kCoordinatorNode, true, false);
    swarm.cluster().runtime().run_for(43s);
    swarm.cluster().network().unsilence(kCoordinatorNode);
    swarm.thaw(silent);
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) >= 4; }, 60s));
    EXPECT_GE(events(swarm, "lost_touch"), 1U);
    EXPECT_EQ(events(swarm, "peer_lost"), 0U);
    EXPECT_EQ(events(swarm, "new_era"), 0U);
  });
}

// Whoever asks for a seat hears of none, and has one: it says that it lives meanwhile.
TEST_P(LostTouch, ANewcomersWelcomeDoesNotArriveForAWhile) {
  twice(quick(run_of({2, 2})), slow_machines(), [](Swarm& swarm) {
    const MarkExpected waits("link.waits_for_its_welcome");
    const SimNodeId newcomer = newcomer_without_its_welcome(swarm);
    swarm.cluster().runtime().run_for(6s);
    EXPECT_EQ(events(swarm, "peer_joined"), 5U);
    swarm.release(kCoordinatorNode, newcomer);
    swarm.cluster().runtime().run_for(5s);
    EXPECT_EQ(events(swarm, "peer_joined"), 5U) << history(swarm);
    EXPECT_EQ(events(swarm, "peer_lost"), 0U) << history(swarm);
  });
}

// Seed 8355. It has not heard of its seat when it gives up on the link: nobody has lost anything.
TEST_P(LostTouch, ANewcomerThatNeverHeardOfItsSeatIsNotLost) {
  twice(quick(run_of({2, 2})), slow_machines(), [](Swarm& swarm) {
    const MarkExpected not_taken("settling.seat_not_taken");
    const SimNodeId newcomer = newcomer_without_its_welcome(swarm);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_joined") == 5; }));
    swarm.cluster().network().cut(kCoordinatorNode, newcomer);
    swarm.release(kCoordinatorNode, newcomer);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }));
    EXPECT_EQ(events(swarm, "seat_not_taken"), 1U);
    EXPECT_EQ(events(swarm, "peer_lost"), 0U) << history(swarm);
    EXPECT_EQ(events(swarm, "peer_joined"), 6U);
    swarm.cluster().network().cut(kCoordinatorNode, newcomer);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_joined") == 7; }));
    EXPECT_EQ(events(swarm, "peer_lost"), 1U) << "it served";
  });
}

// The journal takes its time, for less than would hold newcomers up: the seat is given, and can't
// be told.
TEST_P(LostTouch, ANewcomersWelcomeWaitsForTheJournal) {
  Knobs patient = knobs();
  patient.journal_late = 10s;
  const TurnedKnobs turned(patient);
  twice(quick(run_of({2, 2})), [](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
    const SimNodeId newcomer = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
    ASSERT_TRUE(swarm.until_delivered(MessageKind::kHello, 1, newcomer, kCoordinatorNode));
    swarm.cluster().journal().disk().silent = true;
    swarm.cluster().runtime().run_for(8s);
    swarm.cluster().journal().disk().silent = false;
    swarm.cluster().runtime().run_for(5s);
    EXPECT_EQ(events(swarm, "peer_joined"), 5U) << history(swarm);
    EXPECT_EQ(events(swarm, "peer_lost"), 0U) << history(swarm);
  });
}

// Their addresses refuse, and nobody is waited for longer than peers_wait_seconds.
TEST_P(LostTouch, EverybodyIsGoneWhileItIsCutOff) {
  RunConfig config = quick(run_of({1, 1}));
  config.net.peers_wait_seconds = 5;
  Swarm swarm(options_for(config));
  swarm.until_committed(2);
  each_peer(swarm, [&](SimNodeId node) { swarm.freeze(node); });
  swarm.cluster().runtime().run_for(2s);
  EXPECT_EQ(events(swarm, "lost_touch"), 1U);
  each_peer(swarm, [&](SimNodeId node) { swarm.kill(node); });
  const MarkExpected waits("recovery.waits_for_anybody");
  const RunOutcome outcome = swarm.end(20s);
  EXPECT_EQ(outcome.exit_code, 1);
}

// Cut off, and then it was they: who comes first shows that somebody can, and is not kept waiting.
TEST_P(LostTouch, EverybodyIsLostAndNewcomersTakeOver) {
  RunConfig config = quick(run_of({1, 1}));
  config.net.peers_wait_seconds = 3600;
  twice(config, [](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
    each_peer(swarm, [&](SimNodeId node) { swarm.freeze(node); });
    swarm.cluster().runtime().run_for(10s);
    EXPECT_EQ(events(swarm, "new_era"), 0U);
    each_peer(swarm, [&](SimNodeId node) { swarm.kill(node); });
    swarm.cluster().add_peer({});
    swarm.cluster().add_peer({});
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "start") == 2; }, 10s));
    EXPECT_EQ(events(swarm, "new_era"), 1U);
  });
}

// It would go round for ever: after so many times without a step the state is given up.
TEST_P(LostTouch, ALinkThatAlwaysBreaksEndsTheRun) {
  RunConfig config = quick(run_of({1, 1}));
  config.net.peers_wait_seconds = 5;
  Swarm swarm(options_for(config));
  swarm.until_committed(2);
  const SimNodeId last = swarm.node(1, 0);
  swarm.rule([last](SimNodeId from, SimNodeId to, const Frame& frame) -> FrameFate {
    const bool breaks =
        from == kCoordinatorNode && to == last &&
        (kind_of(frame) == MessageKind::kResume || kind_of(frame) == MessageKind::kOpenPhase);
    if (!breaks) return {};
    return {.kind = FrameFate::Kind::kDropConnection, .delay = {}};
  });
  swarm.cluster().network().cut(kCoordinatorNode, last);
  const RunOutcome outcome = swarm.end(600s);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(events(swarm, "lost_touch"), 16U);
  EXPECT_GE(events(swarm, "new_era"), 1U);
}

INSTANTIATE_TEST_SUITE_P(Delay, LostTouch, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
