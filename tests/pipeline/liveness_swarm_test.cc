// What a run outlasts instead of hanging, ending, or going back: one disturbance a test, in whole
// swarms of fake models, whose parameters must be those of the run without it, bit for bit.
#include <algorithm>

#include <gtest/gtest.h>

#include "engine/net/rpc.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/protocol_version.h"
#include "sim/cluster/fake_stage_model.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/swarm_harness.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

// Steps of ten seconds: who fetches a state may take its time.
const SimPeer kSlow{.forward = 1s, .backward = 2s};

class Liveness : public testing::TestWithParam<std::uint32_t> {
 protected:
  RunConfig run_of(std::vector<std::uint32_t> peers) const {
    return small_run(std::move(peers), GetParam());
  }
  static void expect_exact(Swarm& swarm, const RunConfig& config) {
    const RunOutcome outcome = swarm.end(3600s);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.sentence << "\n" << history(swarm);
    EXPECT_EQ(swarm.cluster().parameters(), one_each(config));
    if (testing::Test::HasFailure()) FAIL() << history(swarm);
  }
};

// The coordinator dies while a peer computes what it had claimed. The next one knows of no claim
// and leases it again; that try is on the same peer's device already when the first one's report is
// judged, and would pass it by: then nobody had it, for ever.
TEST_P(Liveness, AClaimOutlivesTheCoordinatorThatGrantedIt) {
  RunConfig config = run_of({1, 2});
  config.batch = {.batch = 2, .microbatch = 2, .sequence = 4};  // one microbatch a step
  Swarm swarm(swarm_of(config, make_fake_model));
  swarm.until_committed(1);
  std::optional<SimNodeId> first;
  swarm.watch([&](SimNodeId, SimNodeId to, const Frame& frame) {
    if (!first && kind_of(frame) == MessageKind::kForward) first = to;
  });
  ASSERT_TRUE(swarm.until([&] { return first.has_value(); }));
  const SimNodeId other = swarm.node(1, swarm.node(1, 0) == *first ? 1 : 0);
  swarm.kill(*first);  // what it had is leased again: that try claims
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kClaim, 1, other, kCoordinatorNode));
  constexpr double kSlower = 300;
  swarm.cluster().device(other - 1).slow_down(kSlower);
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kClaimReply, 1, kCoordinatorNode, other));
  swarm.cluster().kill_coordinator();
  swarm.cluster().restart_coordinator();
  const MarkExpected outlived("ledger.report_outlived_its_claim");
  const std::uint64_t commits = commits_of(swarm.cluster());
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) > commits; }, 600s))
      << swarm.cluster().coordinator().status_json();
  swarm.cluster().device(other - 1).slow_down(1);
  expect_exact(swarm, config);
  EXPECT_EQ(events(swarm, "new_era"), 0U);
}

// Peers have said hello to the next coordinator, which stands still until after its deadline: its
// timers come first when it wakes, then it reads what it was sent.
TEST_P(Liveness, ACoordinatorThatStoodStillReadsBeforeItJudges) {
  RunConfig config = run_of({2, 2});
  config.net.collect_seconds = 5;
  Swarm swarm(swarm_of(config, make_fake_model));
  swarm.until_committed(1);
  swarm.cluster().kill_coordinator();
  swarm.cluster().runtime().run_for(50ms);
  for (std::size_t i = 0; i < 4; ++i)
    swarm.hold(SimCluster::node_of_peer(i), kCoordinatorNode, MessageKind::kHello);
  swarm.cluster().restart_coordinator();
  swarm.cluster().runtime().run_for(100ms);
  const MarkExpected anew("deadline.begins_anew");
  swarm.freeze(kCoordinatorNode);
  swarm.cluster().runtime().run_for(8s);
  swarm.thaw(kCoordinatorNode);
  swarm.cluster().runtime().run_for(1ms);
  for (std::size_t i = 0; i < 4; ++i) swarm.release(SimCluster::node_of_peer(i), kCoordinatorNode);
  expect_exact(swarm, config);
  EXPECT_EQ(events(swarm, "new_era"), 0U) << history(swarm);
}

// The host of a shadow is on its way to the stage that it takes over, and its hello in the socket.
TEST_P(Liveness, ATakeoverOutlivesAStopOfTheCoordinator) {
  RunConfig config = run_of({2, 2});
  config.run.steps = 12;
  config.balance.shadows = {.count = 1};
  Swarm swarm(swarm_of(config, make_fake_model));
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "shadow_ready") >= 2; }));
  swarm.kill_stage(1);
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "take_over") == 1; }, 10s));
  swarm.freeze(kCoordinatorNode);
  swarm.cluster().runtime().run_for(8s);
  swarm.thaw(kCoordinatorNode);
  expect_exact(swarm, config);
  EXPECT_EQ(events(swarm, "taken_over"), 1U) << history(swarm);
  EXPECT_EQ(events(swarm, "new_era"), 0U);
}

// One that has a seat and no state says that it did all of the open step: were it believed, the
// step would be committed without it.
TEST_P(Liveness, WhoDoesNotServeItsStageOwnsNothing) {
  constexpr SimNodeId kLiar = 50;
  const RunConfig config = run_of({1, 2});
  Swarm swarm(swarm_of(config, make_fake_model));
  SimCluster& cluster = swarm.cluster();
  swarm.until_committed(1);
  std::shared_ptr<RpcChannel> channel;
  std::optional<Seat> seat;
  cluster.network().node(kLiar).connect(*parse_address(kCoordinatorAddress), 1s, [&](auto made) {
    channel = RpcChannel::make(cluster.runtime().node(kLiar), *made);
    channel->start({.on_message = [](Frame) {}});
    wire::Hello hello;
    hello.set_protocol(kProtocolVersion);
    hello.set_address("sim:1");
    channel->call(make_frame(MessageKind::kHello, hello), 1s, [&](const Result<Frame>& reply) {
      seat = from_wire(parse<wire::Welcome>(*reply)->seat());
    });
  });
  const MarkExpected refused("reign.does_not_serve_yet");
  ASSERT_TRUE(swarm.until([&] { return seat.has_value(); }));
  wire::Report report;
  *report.mutable_seat() = to_wire(*seat);
  *report.mutable_phase() = to_wire(Phase{PhaseKind::kTrain, commits_of(cluster)});
  for (std::uint32_t i = 0; i < config.microbatches_per_step(); ++i)
    report.add_contributions()->set_index(i);
  channel->notify(make_frame(MessageKind::kReport, report));
  ASSERT_TRUE(swarm.until([&] { return commits_of(cluster) >= 3; }));
  channel->close();
  expect_exact(swarm, config);
}

// ---- Those that get no further ------------------------------------------------------------------

// Its heartbeats come, and its stage is never built.
TEST_P(Liveness, APeerThatBuildsForEverHoldsNobodyUp) {
  RunConfig config = run_of({1, 1});
  config.net.build_seconds = 30;
  SimClusterOptions options = swarm_of(config, make_fake_model);
  constexpr std::size_t kHangs = 1;
  options.peers = {{}, {}, {}};
  options.peers[0].kind = kHangs;
  options.service = [](const SimPeer& machine, StageId, JobKind kind) -> std::optional<Duration> {
    if (machine.kind == kHangs && kind == JobKind::kOther) return 100h;
    return std::nullopt;
  };
  Swarm swarm(std::move(options));
  swarm.cluster().add_peer({});
  const MarkExpected still("reign.stands_still");
  expect_exact(swarm, config);
}

// The one that it asks for its state sends nothing, over a link that stands.
TEST_P(Liveness, AJoinerAsksAnotherHolder) {
  RunConfig config = run_of({3, 2});
  config.run.steps = 40;
  SimClusterOptions options = swarm_of(config, make_fake_model);
  options.peers.assign(5, kSlow);
  Swarm swarm(std::move(options));
  swarm.until_committed(2);
  const std::size_t joiner = swarm.cluster().add_peer({});
  const SimNodeId node = SimCluster::node_of_peer(joiner);
  std::optional<SimNodeId> silent;
  swarm.watch([&](SimNodeId from, SimNodeId to, const Frame& frame) {
    if (silent || from != node || kind_of(frame) != MessageKind::kPieceRequest) return;
    silent = to;
    swarm.hold(to, node, MessageKind::kPiece);
  });
  const MarkExpected another("piece_fetch.holder_does_not_answer");
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 100s))
      << history(swarm);
  swarm.release(*silent, node);
  expect_exact(swarm, config);
}

TEST_P(Liveness, AJoinerThatStandsStillIsNotWaitedForByOthers) {
  RunConfig config = run_of({4, 1});
  config.run.steps = 40;
  config.net.build_seconds = 60;
  SimClusterOptions options = swarm_of(config, make_fake_model);
  options.peers.assign(5, kSlow);
  Swarm swarm(std::move(options));
  swarm.until_committed(2);
  const SimNodeId holder = swarm.node(1, 0);
  const SimNodeId first = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
  swarm.hold(holder, first, MessageKind::kPiece);
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kPieceRequest, 1, first));
  swarm.until_committed(4);  // another version is there for the next one
  const std::size_t other = swarm.cluster().add_peer({});
  const MarkExpected others("state_transfer.not_waited_for"), still("reign.stands_still");
  ASSERT_TRUE(swarm.until([&] { return swarm.cluster().serves(other); }, 40s)) << history(swarm);
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_lost", "no further") == 1; }, 100s))
      << history(swarm);
  swarm.release(holder, first);
  expect_exact(swarm, config);
}

// Another build of the program, say: it is refused, and the run begins without it.
TEST_P(Liveness, ANewcomerWithOtherBitsIsRefused) {
  constexpr SimNodeId kOther = 50;
  const RunConfig config = run_of({1, 1});
  Swarm swarm(swarm_of(config, make_fake_model));
  SimCluster& cluster = swarm.cluster();
  std::shared_ptr<RpcChannel> channel;
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kWelcome, 2));
  cluster.network().node(kOther).connect(*parse_address(kCoordinatorAddress), 1s, [&](auto made) {
    channel = RpcChannel::make(cluster.runtime().node(kOther), *made);
    channel->start({.on_message = [](Frame) {}});
    wire::Hello hello;
    hello.set_protocol(kProtocolVersion);
    hello.set_address("sim:1");
    channel->call(make_frame(MessageKind::kHello, hello), 1s, [&](const Result<Frame>& reply) {
      wire::Ready ready;
      *ready.mutable_seat() = parse<wire::Welcome>(*reply)->seat();
      ready.set_state_digest(4711);
      channel->notify(make_frame(MessageKind::kReady, ready));
    });
  });
  for (std::size_t i = 0; i < 2; ++i)
    swarm.hold(SimCluster::node_of_peer(i), kCoordinatorNode, MessageKind::kHeartbeat);
  swarm.cluster().runtime().run_for(100ms);
  for (std::size_t i = 0; i < 2; ++i) swarm.release(SimCluster::node_of_peer(i), kCoordinatorNode);
  expect_exact(swarm, config);
  channel->close();
}

// ---- Those that can't be reached ----------------------------------------------------------------

// Longer than all tries in quick succession take.
TEST_P(Liveness, ALinkThatIsGoneForAWhileIsOutlasted) {
  const RunConfig config = run_of({1, 1});
  Swarm swarm(swarm_of(config, make_fake_model));
  swarm.until_committed(1);
  const SimNodeId a = swarm.node(0, 0), b = swarm.node(1, 0);
  bool gone = true;
  swarm.lose([&](SimNodeId from, SimNodeId to, const Frame&) {
    return gone && ((from == a && to == b) || (from == b && to == a));
  });
  swarm.cluster().network().cut(a, b);
  const MarkExpected on("forwarder.tries_on");
  swarm.cluster().runtime().run_for(30s);
  gone = false;
  expect_exact(swarm, config);
  EXPECT_EQ(events(swarm, "peer_lost"), 0U);
}

// Its device fails; as good as killed: the others go back, and go on.
TEST_P(Liveness, TheLastPeerOfAStageFails) {
  const RunConfig config = run_of({2, 1});
  ModelHooks hooks;
  auto failed = std::make_shared<bool>(false);
  hooks.before_backward = [failed](StageId stage, int, const AttemptId& id) -> Result<void> {
    if (stage.value == 1 && id.microbatch.phase.step == 1 && !std::exchange(*failed, true))
      return fail(ErrorCode::kDevice, "an uncorrectable error");
    return {};
  };
  Swarm swarm(swarm_of(config, hooked(make_fake_model, hooks)));
  const MarkExpected rolled("settling.last_peer_failed");
  expect_exact(swarm, config);
  EXPECT_EQ(events(swarm, "new_era", "an uncorrectable error"), 1U) << history(swarm);
}

// ---- Those that alone hold a stage's state ------------------------------------------------------

class LastOnes : public Liveness {
 protected:
  RunConfig quick(std::vector<std::uint32_t> peers) const {
    RunConfig config = run_of(std::move(peers));
    config.run.steps = 24;
    config.net.heartbeat_seconds = 0.1;
    config.net.peer_silence_seconds = 0.5;
    config.net.collect_seconds = 1;
    return config;
  }
  static void block(Swarm& swarm, SimNodeId node) {
    swarm.cluster().network().block(kCoordinatorNode, node);
    swarm.cluster().network().block(node, kCoordinatorNode);
  }
  static void unblock(Swarm& swarm, SimNodeId node) {
    swarm.cluster().network().unblock(kCoordinatorNode, node);
    swarm.cluster().network().unblock(node, kCoordinatorNode);
  }
};

TEST_P(LastOnes, ASilenceShorterThanGoingBackLosesNothing) {
  const RunConfig config = quick({1, 1});
  Swarm swarm(swarm_of(config, make_fake_model));
  swarm.until_committed(12);
  const SimNodeId last = swarm.node(1, 0);
  const MarkExpected waits("vigil.waits"), heard("vigil.heard_again");
  swarm.freeze(last);
  swarm.cluster().runtime().run_for(4s);
  swarm.thaw(last);
  expect_exact(swarm, config);
  EXPECT_EQ(events(swarm, "peer_lost"), 0U) << history(swarm);
  EXPECT_EQ(events(swarm, "waiting"), 1U);
}

TEST_P(LastOnes, ALongerOneIsNotWaitedFor) {
  const RunConfig config = quick({2, 1});
  Swarm swarm(swarm_of(config, make_fake_model));
  swarm.until_committed(12);
  const MarkExpected given_up("vigil.given_up");
  swarm.freeze(swarm.node(1, 0));
  expect_exact(swarm, config);
  EXPECT_EQ(events(swarm, "new_era"), 1U);
}

TEST_P(LastOnes, NobodyIsWaitedForWhereTheConfigSaysSo) {
  RunConfig config = quick({2, 1});
  config.run.wait_seconds = 0;
  Swarm swarm(swarm_of(config, make_fake_model));
  swarm.until_committed(12);
  swarm.freeze(swarm.node(1, 0));
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "new_era") == 1; }, 1s));
  expect_exact(swarm, config);
}

// All peers of one stage, while those of the other are heard.
TEST_P(LastOnes, AZoneIsCutOffForAWhile) {
  const RunConfig config = quick({2, 2});
  Swarm swarm(swarm_of(config, make_fake_model));
  swarm.until_committed(12);
  const std::vector<SimNodeId> zone = swarm.serving(1);
  for (const SimNodeId node : zone) block(swarm, node);
  swarm.cluster().runtime().run_for(4s);
  for (const SimNodeId node : zone) unblock(swarm, node);
  expect_exact(swarm, config);
  EXPECT_EQ(events(swarm, "new_era"), 0U) << history(swarm);
  EXPECT_EQ(events(swarm, "peer_lost"), 0U) << history(swarm);
}

// With a standby, which does not lead meanwhile.
TEST_P(LastOnes, TheCoordinatorIsCutOffForAWhile) {
  RunConfig config = quick({2, 2});
  config.net.standby = {kStandbyAddress};
  Swarm swarm(swarm_of(config, make_fake_model));
  swarm.until_committed(12);
  for (std::size_t i = 0; i < 4; ++i) block(swarm, SimCluster::node_of_peer(i));
  swarm.cluster().runtime().run_for(3s);
  for (std::size_t i = 0; i < 4; ++i) unblock(swarm, SimCluster::node_of_peer(i));
  expect_exact(swarm, config);
  EXPECT_EQ(events(swarm, "new_era"), 0U) << history(swarm);
}

// A coordinator that is begun again waits for it, too.
TEST_P(LastOnes, OneIsSilentWhileTheCoordinatorIsBegunAgain) {
  const RunConfig config = quick({2, 1});
  Swarm swarm(swarm_of(config, make_fake_model));
  swarm.until_committed(12);
  const SimNodeId last = swarm.node(1, 0);
  const MarkExpected waits("recovery.waits_for_the_last_ones");
  swarm.freeze(last);
  swarm.cluster().kill_coordinator();
  swarm.cluster().restart_coordinator();
  swarm.cluster().runtime().run_for(10s);
  swarm.thaw(last);
  expect_exact(swarm, config);
  EXPECT_EQ(events(swarm, "new_era"), 0U) << history(swarm);
}

// Only newcomers reached it before, and these it takes for lost soon: nobody is there to go back
// with.
TEST_P(LastOnes, ACoordinatorThatIsBegunAgainIsCutOffAfterANewcomerCame) {
  RunConfig config = quick({2, 1});
  config.net.peers_wait_seconds = 60;
  Swarm swarm(swarm_of(config, make_fake_model));
  swarm.until_committed(12);
  swarm.cluster().kill_coordinator();
  for (std::size_t i = 0; i < 3; ++i) block(swarm, SimCluster::node_of_peer(i));
  swarm.cluster().restart_coordinator();
  const SimNodeId newcomer = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kWelcome, 1, kCoordinatorNode, newcomer));
  const MarkExpected waits("recovery.waits_for_anybody"), heard("recovery.heard_somebody");
  block(swarm, newcomer);
  swarm.cluster().runtime().run_for(180s);
  for (std::size_t i = 0; i < 4; ++i) unblock(swarm, SimCluster::node_of_peer(i));
  expect_exact(swarm, config);
  EXPECT_EQ(events(swarm, "new_era"), 0U) << history(swarm);
}

// It holds what is committed, and nobody has said yet which bits that should be.
TEST_P(LastOnes, AJoinerThatHoldsItAllIsAnHeir) {
  const RunConfig config = quick({2, 1});
  Swarm swarm(swarm_of(config, make_fake_model));
  swarm.until_committed(3);
  const SimNodeId last = swarm.node(1, 0);
  const SimNodeId joiner = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
  swarm.hold(last, joiner, MessageKind::kPiece);
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kPieceRequest, 1, joiner, last));
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kCommit, 1, kCoordinatorNode, last));
  swarm.hold(last, kCoordinatorNode);
  swarm.release(last, joiner);
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kReady, 1, joiner, kCoordinatorNode));
  swarm.cluster().runtime().run_for(10ms);
  const MarkExpected heir("settling.a_joiner_inherits");
  swarm.kill(last);
  expect_exact(swarm, config);
  EXPECT_EQ(events(swarm, "new_era"), 0U) << history(swarm);
}

// Processes come and go; of those that went for good only the last are known, by the journal and by
// the next coordinator, too, and nobody gets the number of one that is forgotten.
TEST_P(Liveness, PeersWithoutNumberHaveComeAndGone) {
  Knobs few = knobs();
  few.lost_peers_kept = 2;
  const TurnedKnobs turned(few);
  RunConfig config = run_of({1, 2});
  config.run.steps = 12;
  const MarkExpected forgotten("settling.long_gone_forgotten");
  Swarm swarm(swarm_of(config, make_fake_model));
  SimCluster& cluster = swarm.cluster();
  PeerId newest{3};
  for (std::uint64_t step = 1; step <= 8; ++step) {
    swarm.until_committed(step);
    ASSERT_TRUE(swarm.until([&] { return swarm.serving(1).size() == 2; }));
    swarm.kill(swarm.serving(1).back());
    const std::size_t newcomer = cluster.add_peer({});
    ASSERT_TRUE(swarm.until([&] {
      const auto serving = swarm.serving(1);
      return std::ranges::find(serving, SimCluster::node_of_peer(newcomer)) != serving.end();
    }));
    const Seat seat = cluster.peer(newcomer).seat();
    EXPECT_GT(seat.peer, newest);
    newest = seat.peer;
    if (step % 3 != 0) continue;
    cluster.kill_coordinator();
    cluster.restart_coordinator();
  }
  EXPECT_LE(cluster.journal().seats()->size(), 6U) << "three that serve, and some that went";
  expect_exact(swarm, config);
}

INSTANTIATE_TEST_SUITE_P(Delay, LastOnes, testing::Values(0U, 1U));
INSTANTIATE_TEST_SUITE_P(Delay, Liveness, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
