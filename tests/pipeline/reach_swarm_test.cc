// Swarms some of whose peers take no connections: links are dialled by whichever end can, and the
// run ends as it would have.
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/run_status.h"
#include "pipeline/relay/relay_role.h"
#include "pipeline/stage/microbatches/next_stage.h"
#include "pipeline/wiring/wiring.h"
#include "sim/cluster/fake_stage_model.h"
#include "sim/doors/sim_relay.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/swarm_harness.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class ReachSwarm : public testing::TestWithParam<SimDoor> {
 protected:
  // Of peers in joining order.
  void shut(Swarm& swarm, std::initializer_list<std::size_t> peers) {
    for (const std::size_t peer : peers)
      swarm.cluster().network().set_door(SimCluster::node_of_peer(peer), GetParam());
  }
  void expect_exact(Swarm& swarm, const RunConfig& config) {
    const RunOutcome outcome = swarm.end(300s);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.sentence << "\n" << history(swarm);
    EXPECT_EQ(events(swarm, "new_era"), 0U);
    EXPECT_EQ(events(swarm, "peer_lost"), 0U) << history(swarm);
    expect_equal(swarm.cluster().parameters(), one_each(config));
  }
};

TEST_P(ReachSwarm, OnePeerBehindADoorServesLikeAnyOther) {
  const RunConfig config = small_run({2, 2, 2}, 0);
  for (const std::size_t shut_in : {std::size_t{0}, std::size_t{3}, std::size_t{5}}) {
    Swarm swarm(swarm_of(config, make_fake_model));
    shut(swarm, {shut_in});
    expect_exact(swarm, config);
    EXPECT_EQ(events(swarm, "out_of_reach"), 0U);
    // Of the first stage it dials all that it needs itself.
    if (shut_in > 0) EXPECT_GE(swarm.delivered(MessageKind::kCall), 1U);
  }
}

// Every second one, so that of any two that must reach each other one can be dialled.
TEST_P(ReachSwarm, AWholeStageBehindDoorsIsReachedByItsNeighbours) {
  const RunConfig config = small_run({1, 1, 1}, 1);
  Swarm swarm(swarm_of(config, make_fake_model));
  shut(swarm, {1});
  expect_exact(swarm, config);
}

// A link that is cut again and again comes back each time, by a call.
TEST_P(ReachSwarm, LinksThatBreakAreCalledForAgain) {
  RunConfig config = small_run({2, 2}, 0);
  config.run.steps = 30;
  Swarm swarm(swarm_of(config, make_fake_model));
  shut(swarm, {1});
  for (std::uint64_t step = 5; step < 30; step += 5) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) >= step; })) << history(swarm);
    for (std::size_t other = 0; other < 4; ++other)
      if (other != 1)
        swarm.cluster().network().cut(SimCluster::node_of_peer(1), SimCluster::node_of_peer(other));
  }
  const RunOutcome outcome = swarm.end(300s);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.sentence << "\n" << history(swarm);
  expect_equal(swarm.cluster().parameters(), one_each(config));
}

// A relay of a run, as a process of its own would be.
struct RelayNodeInSim {
  RelayNodeInSim(Swarm& swarm, SimNodeId node, RelayBounds bounds = {})
      : door(swarm.cluster().network(), node, bounds),
        role(swarm.cluster().runtime().node(node), swarm.cluster().network().node(node), door,
             {.coordinators = {*parse_address(kCoordinatorAddress)},
              .name = "relay",
              .listen = {"sim", 0},
              .bounds = bounds},
             [this](int code, const std::string&) { ended = code; }) {
    role.start();
  }
  SimRelay door;
  RelayRole role;
  std::optional<int> ended;
};
constexpr SimNodeId kRelayNode = 5000;

TEST_P(ReachSwarm, TwoBehindDoorsMeetAtARelay) {
  RunConfig config = small_run({2, 2, 2}, 0);
  config.net.heartbeat_seconds = 0.01;
  Swarm swarm(swarm_of(config, make_fake_model));
  RelayNodeInSim relay(swarm, kRelayNode);
  shut(swarm, {0, 1, 2, 3, 4, 5});
  expect_exact(swarm, config);
  EXPECT_EQ(events(swarm, "out_of_reach"), 0U) << history(swarm);
  EXPECT_EQ(events(swarm, "relay_joined"), 1U);
  EXPECT_GE(relay.door.counters().links_ever, 8U);
  EXPECT_EQ(relay.ended, 0) << "the end of the run is its own";
  // What each peer has sent over it, as its last heartbeat said.
  const auto status = parse_status(swarm.cluster().coordinator().status_json());
  ASSERT_TRUE(status) << status.error().what;
  for (const StageStatus& stage : status->stages)
    for (const PeerStatus& peer : stage.peers) {
      EXPECT_GT(peer.relayed_bytes, 1000U) << peer.peer;
      EXPECT_GE(peer.relayed_links, 1U) << peer.peer;
    }
}

TEST_P(ReachSwarm, ARelayThatIsLostIsReplacedByAnother) {
  RunConfig config = small_run({1, 1}, 0);
  config.run.steps = 20;
  Swarm swarm(swarm_of(config, make_fake_model));
  auto first = std::make_unique<RelayNodeInSim>(swarm, kRelayNode);
  shut(swarm, {0, 1});
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) >= 5; })) << history(swarm);
  RelayNodeInSim second(swarm, kRelayNode + 1);
  swarm.until([] { return false; }, 300ms);
  first.reset();
  const RunOutcome outcome = swarm.end(300s);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.sentence << "\n" << history(swarm);
  EXPECT_EQ(events(swarm, "relay_lost"), 1U);
  EXPECT_GE(second.door.counters().links_ever, 1U);
  expect_equal(swarm.cluster().parameters(), one_each(config));
}

// Without one the run says who can't reach whom, once, and does not spin.
TEST_P(ReachSwarm, TwoBehindDoorsWithoutARelayAreSaid) {
  const RunConfig config = small_run({1, 1}, 0);
  Swarm swarm(swarm_of(config, make_fake_model));
  shut(swarm, {0, 1});
  swarm.until([] { return false; }, 50s);
  EXPECT_EQ(commits_of(swarm.cluster()), 0U);
  EXPECT_EQ(events(swarm, "out_of_reach"), 1U) << history(swarm);
  EXPECT_LE(swarm.delivered(MessageKind::kCallMe), 60U) << "each two seconds at most";
  RelayNodeInSim relay(swarm, kRelayNode);
  expect_exact(swarm, config);
}

// ---- What links cost ----

// What the link between the two peers of a run costs, for the wiring of the first.
double link_seconds(SimDoor door) {
  RunConfig config = small_run({1, 1}, 0);
  SimClusterOptions options = swarm_of(config, make_fake_model);
  options.link.bytes_per_second = 1e6;
  std::vector<const Wiring*> rules;
  options.make_wiring = [&](const RunConfig& run, const Seat& self) {
    auto rule = make_wiring(run, self);
    if (self.stage.value == 0) rules.push_back(rule.get());
    return rule;
  };
  Swarm swarm(std::move(options));
  RelayNodeInSim relay(swarm, kRelayNode);
  for (const std::size_t peer : {0, 1})
    swarm.cluster().network().set_door(SimCluster::node_of_peer(peer), door);
  EXPECT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; })) << history(swarm);
  EXPECT_EQ(rules.size(), 1U);
  return to_seconds(rules.front()->shares().front().expected_link);
}

// Of two equal peers: computing takes 12 ms a microbatch, one's link 36 ms.
TEST(LinkCosts, APeerGetsWhatItsLinkLetsThrough) {
  RunConfig config = small_run({1, 2}, 0);
  config.run.steps = 60;
  constexpr std::uint64_t kCalmSteps = 20;
  Swarm swarm(swarm_of(config, make_fake_model));
  swarm.until_started();
  const SimNodeId sender = swarm.node(0, 0), slow = swarm.node(1, 0), fast = swarm.node(1, 1);
  constexpr double kActivationBytes = 2 * 4 * 8 * 8;
  swarm.cluster().network().set_link(
      sender, slow, {.latency = 1ms, .jitter = {}, .bytes_per_second = kActivationBytes / 36e-3});
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == kCalmSteps; }));
  const auto sent = [&](SimNodeId to) {
    return static_cast<double>(swarm.delivered(MessageKind::kForward, sender, to));
  };
  const double slow_before = sent(slow), fast_before = sent(fast);
  swarm.finish();
  const double to_slow = sent(slow) - slow_before, to_fast = sent(fast) - fast_before;
  EXPECT_NEAR(to_slow / (to_slow + to_fast), 0.25, 0.05);
  expect_equal(swarm.cluster().parameters(), one_each(config));
}

TEST(LinkCosts, OverARelayTheyAreTwiceWhatItTakes) {
  const double direct = link_seconds(SimDoor::kOpen);
  EXPECT_GT(direct, 1e-4);
  EXPECT_NEAR(link_seconds(SimDoor::kRefuses), kRelayCrossings * direct, 1e-6);
}

// ---- One of the next stage's peers can't be reached from one sender ----

class OneLinkCantBeHad : public testing::TestWithParam<std::pair<bool, bool>> {
 protected:
  void block(SimNodeId from, SimNodeId to) {
    SimNetwork& network = swarm().cluster().network();
    if (GetParam().first) network.block(from, to);
    if (GetParam().second) network.block(to, from);
  }
  Swarm& swarm() { return swarm_; }

  TurnedKnobs knobs_{[] {
    Knobs knobs;
    knobs.connect_timeout = 3s;
    knobs.call_after = 300ms;
    knobs.call_time = 2s;
    return knobs;
  }()};
  RunConfig config_ = [] {
    RunConfig config = small_run({2, 2}, 0);
    config.run.steps = 150;
    config.wiring.hop_timeout_seconds = 1;
    return config;
  }();
  Swarm swarm_{swarm_of(config_, make_fake_model)};
};

// [Each of its microbatches waited for the hop's timeout, and the next one went there again.]
TEST_P(OneLinkCantBeHad, SoItGetsNothingFromThereAndNothingWaits) {
  const MarkExpected late("forwarder.did_not_wait_for_a_link");
  const MarkExpected out("forwarder.left_out");
  swarm().until_started();
  const SimNodeId sender = swarm().node(0, 0), shut = swarm().node(1, 0);
  block(sender, shut);
  std::uint64_t stalls = 0;
  swarm().watch([&](SimNodeId, SimNodeId, const Frame& frame) {
    stalls += kind_of(frame) == MessageKind::kStallReport;
  });
  // Until its link has been dialled in vain.
  ASSERT_TRUE(swarm().until([&] { return swarm().cluster().elapsed() > 5s; }));
  EXPECT_GT(commits_of(swarm().cluster()), 30U) << history(swarm());
  EXPECT_EQ(swarm().delivered(MessageKind::kForward, sender, shut), 0U);
  EXPECT_GT(swarm().delivered(MessageKind::kForward, swarm().node(0, 1), shut), 0U);
  EXPECT_EQ(stalls, 0U);
  // It is tried again, and works once the way is free.
  const MarkExpected back("forwarder.link_is_there_after_all");
  swarm().cluster().network().unblock(sender, shut);
  swarm().cluster().network().unblock(shut, sender);
  const RunOutcome outcome = swarm().end(3600s);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.sentence << "\n" << history(swarm());
  EXPECT_GT(swarm().delivered(MessageKind::kForward, sender, shut), 0U);
  EXPECT_EQ(stalls, 0U);
  EXPECT_EQ(events(swarm(), "peer_lost"), 0U) << history(swarm());
  expect_equal(swarm().cluster().parameters(), one_each(config_));
}

INSTANTIATE_TEST_SUITE_P(Ways, OneLinkCantBeHad,
                         testing::Values(std::pair(true, true), std::pair(true, false),
                                         std::pair(false, true)),
                         [](const auto& ways) {
                           return !ways.param.second  ? "There"
                                  : !ways.param.first ? "Back"
                                                      : "Both";
                         });

INSTANTIATE_TEST_SUITE_P(Doors, ReachSwarm, testing::Values(SimDoor::kDrops, SimDoor::kRefuses),
                         [](const auto& door) {
                           return door.param == SimDoor::kDrops ? "Drops" : "Refuses";
                         });

}  // namespace
}  // namespace swarmline
