// Swarms of more peers than a coordinator wants two heartbeats a second of: it asks for fewer, and
// finds who is gone in the time that docs/failures.md says.
#include <gtest/gtest.h>

#include "pipeline/protocol/knobs.h"
#include "sim/cluster/fake_stage_model.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/swarm_harness.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kStages = 3, kPeersOfStage = 20;
constexpr std::uint32_t kPerSecond = 15;  // 60 peers: every four seconds
constexpr Duration kPeriod = 4s;
// The period, what any peer may be late by (3.4 usual heartbeats), and two looks.
constexpr Duration kFoundOut = kPeriod + 1700ms + 500ms;

class ThinHeartbeats : public testing::Test {
 protected:
  ThinHeartbeats() {
    Knobs knobs;
    knobs.heartbeats_per_second = kPerSecond;
    turned_.emplace(knobs);
    config_ = small_run(kStages, kPeersOfStage);
    config_.run.steps = 40;
    config_.batch.batch = 240;
    config_.net.peer_silence_seconds = 0;
    config_.wiring.hop_timeout_seconds = 2;
    config_.net.coordinator_patience_seconds = 3600;
  }
  static inline const SimPeer kSlow{.forward = 200ms, .backward = 400ms};
  SimClusterOptions options() const {
    SimClusterOptions options = swarm_of(config_, make_fake_model);
    options.peers.assign(std::size_t{kStages} * kPeersOfStage, kSlow);
    return options;
  }
  // The run goes on until then.
  static void run_for(Swarm& swarm, Duration time) {
    swarm.cluster().runtime().run_for(time);
    ASSERT_FALSE(swarm.cluster().outcome().has_value()) << history(swarm);
  }
  void expect_exact(Swarm& swarm) const {
    const RunOutcome outcome = swarm.end(3600s);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.sentence << "\n" << history(swarm);
    EXPECT_EQ(swarm.cluster().parameters(), one_each(config_));
    for (const OracleFinding& finding : swarm.oracles().findings())
      ADD_FAILURE() << to_string(finding.rule) << ": " << finding.what;
  }
  // From now until the event of that kind; it must come within `limit`.
  static Duration time_until(Swarm& swarm, const std::string& kind, std::size_t count,
                             Duration limit) {
    const Duration begin = swarm.cluster().elapsed();
    EXPECT_TRUE(swarm.until([&] { return events(swarm, kind) >= count; }, limit)) << kind;
    return swarm.cluster().elapsed() - begin;
  }

  RunConfig config_;
  std::optional<TurnedKnobs> turned_;
};

TEST_F(ThinHeartbeats, TheCoordinatorHearsAsManyAsItWants) {
  Swarm swarm(options());
  swarm.until_started();
  run_for(swarm, 2 * kPeriod);
  const std::uint64_t before = swarm.delivered(MessageKind::kHeartbeat);
  constexpr Duration kTime = 5 * kPeriod;
  run_for(swarm, kTime);
  const auto came = static_cast<double>(swarm.delivered(MessageKind::kHeartbeat) - before);
  EXPECT_LE(came, 1.05 * kPerSecond * to_seconds(kTime));
  EXPECT_GE(came, 0.9 * kPerSecond * to_seconds(kTime));
  EXPECT_EQ(events(swarm, "peer_lost"), 0U) << history(swarm);
  expect_exact(swarm);
}

TEST_F(ThinHeartbeats, WhoIsGoneIsFoundInTime) {
  Swarm swarm(options());
  swarm.until_started();
  run_for(swarm, 3 * kPeriod);
  // Without a word.
  swarm.cluster().network().power_off(swarm.node(1, 3));
  const Duration silent = time_until(swarm, "peer_lost", 1, 60s);
  EXPECT_LE(silent, kFoundOut);
  EXPECT_GT(silent, 1700ms);
  // Stopped, and after that it comes back.
  const SimNodeId stopped = swarm.node(2, 5);
  swarm.freeze(stopped);
  EXPECT_LE(time_until(swarm, "peer_lost", 2, 60s), kFoundOut);
  swarm.thaw(stopped);
  // A connection that ends needs no heartbeat.
  swarm.kill(swarm.node(0, 7));
  EXPECT_LE(time_until(swarm, "peer_lost", 3, 60s), 10ms);
  EXPECT_EQ(events(swarm, "lost_touch"), 0U) << history(swarm);
  EXPECT_EQ(events(swarm, "new_era"), 0U) << history(swarm);
  expect_exact(swarm);
}

// As long as any peer may be late.
TEST_F(ThinHeartbeats, WhoStandsStillForAMomentIsNotLost) {
  Swarm swarm(options());
  swarm.until_started();
  run_for(swarm, 3 * kPeriod);
  for (std::size_t i = 0; i < 8; ++i) {
    const SimNodeId node = swarm.node(static_cast<std::uint16_t>(i % kStages), 10 + i / kStages);
    swarm.freeze(node);
    run_for(swarm, 1500ms);
    swarm.thaw(node);
    run_for(swarm, 300ms);
  }
  EXPECT_EQ(events(swarm, "peer_lost"), 0U) << history(swarm);
  expect_exact(swarm);
}

// It is all of them that it does not hear, and says so before it takes any for lost.
TEST_F(ThinHeartbeats, ACoordinatorThatIsCutOffLosesNobody) {
  for (Duration moment{}; moment < kPeriod; moment += kPeriod / 8) {
    const MarkExpected nobody("failure_detector.hears_nobody");
    Swarm swarm(options());
    swarm.until_started();
    run_for(swarm, 3 * kPeriod + moment);
    swarm.cluster().network().silence(kCoordinatorNode, true, true);
    EXPECT_LE(time_until(swarm, "lost_touch", 1, 60s), kFoundOut);
    swarm.cluster().network().unsilence(kCoordinatorNode);
    run_for(swarm, 2 * kPeriod);
    EXPECT_EQ(events(swarm, "peer_lost"), 0U) << to_seconds(moment) << "\n" << history(swarm);
    EXPECT_EQ(events(swarm, "new_era"), 0U);
    if (moment == Duration{}) expect_exact(swarm);
  }
}

// The next coordinator has asked nobody for anything: they beat as usual until it does.
TEST_F(ThinHeartbeats, AnotherCoordinatorTakesNobodyForSilent) {
  Swarm swarm(options());
  swarm.until_started();
  run_for(swarm, 3 * kPeriod);
  for (int i = 0; i < 3; ++i) {
    swarm.cluster().kill_coordinator();
    run_for(swarm, 100ms);
    swarm.cluster().restart_coordinator();
    run_for(swarm, 4 * kPeriod);
  }
  EXPECT_EQ(events(swarm, "peer_lost"), 0U) << history(swarm);
  EXPECT_GE(events(swarm, "peer_resumed"), 3U * kStages * kPeersOfStage);
  expect_exact(swarm);
}

// It has seconds: what it still holds is heard of as often as in a small swarm.
TEST_F(ThinHeartbeats, WhoDrainsBeatsAsUsual) {
  Swarm swarm(options());
  swarm.until_started();
  run_for(swarm, 3 * kPeriod);
  const SimNodeId node = swarm.node(1, 4);
  std::uint64_t usual = 0;
  swarm.watch([&](SimNodeId from, SimNodeId, const Frame& frame) {
    if (from != node || kind_of(frame) != MessageKind::kHeartbeat) return;
    usual += parse<wire::Heartbeat>(frame)->period_seconds() == 0 ? 1 : 0;
  });
  swarm.cluster().peer(node - 1).request_drain(30s);
  time_until(swarm, "peer_left", 1, 30s);
  EXPECT_GE(usual, 1U);
  expect_exact(swarm);
}

}  // namespace
}  // namespace swarmline
