// The journal can't be written for a while, or its store can't be reached: commits and seats wait,
// everything else goes on, and the run ends as if nothing had happened.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/cluster/fake_stage_model.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/swarm_harness.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

RunConfig run_of(std::vector<std::uint32_t> peers, std::uint32_t delay) {
  RunConfig config = small_run(std::move(peers), delay);
  config.run.steps = 6;
  config.checkpoint.every_steps = 3;
  return config;
}

void expect_reference(Swarm& swarm, const RunConfig& config) {
  swarm.finish();
  if (testing::Test::HasFatalFailure()) return;
  EXPECT_EQ(swarm.cluster().parameters(), one_each(config));
  EXPECT_EQ(events(swarm, "new_era"), 0U) << history(swarm);
}

enum class Wrong { kFull, kSilent };
class JournalFails : public testing::TestWithParam<std::tuple<Wrong, std::uint32_t, MessageKind>> {
 protected:
  static void begin(Swarm& swarm) {
    SimJournalDisk& disk = swarm.cluster().journal().disk();
    if (std::get<0>(GetParam()) == Wrong::kFull) disk.fails = "database or disk is full";
    disk.silent = std::get<0>(GetParam()) == Wrong::kSilent;
  }
  static void end(Swarm& swarm) {
    swarm.cluster().journal().disk().fails.reset();
    swarm.cluster().journal().disk().silent = false;
  }
  // Three steps into the run, before the next message of that kind is delivered.
  static void until_then(Swarm& swarm) {
    swarm.until_committed(3);
    ASSERT_TRUE(swarm.until_delivered(std::get<2>(GetParam()), 1));
  }
  static RunConfig config() { return run_of({2, 2}, std::get<1>(GetParam())); }
};

// Longer than any patience that peers have with a coordinator that is silent.
TEST_P(JournalFails, CommitsWaitAndNobodyIsLost) {
  const MarkExpected again("journal_writer.well_again");
  const MarkExpected held("reign.held_up_by_journal");
  Swarm swarm(swarm_of(config(), make_fake_model));
  until_then(swarm);
  begin(swarm);
  swarm.cluster().runtime().run_for(1s);  // what was on its way has come
  const std::uint64_t commits = swarm.delivered(MessageKind::kCommit);
  const std::uint64_t beats = swarm.delivered(MessageKind::kHeartbeatAck);
  swarm.cluster().runtime().run_for(14s);
  EXPECT_EQ(swarm.delivered(MessageKind::kCommit), commits);
  EXPECT_GT(swarm.delivered(MessageKind::kHeartbeatAck), beats + 4 * 14) << "it lives, and says so";
  EXPECT_FALSE(swarm.cluster().outcome().has_value());
  EXPECT_EQ(swarm.delivered(MessageKind::kShutdown), 0U);
  end(swarm);
  expect_reference(swarm, config());
  EXPECT_EQ(events(swarm, "journal_fails"), 1U);
  EXPECT_EQ(events(swarm, "journal_well"), 1U);
  EXPECT_EQ(events(swarm, "peer_lost"), 0U) << history(swarm);
}

// A peer dies and another comes meanwhile: both are dealt with when it can be written down.
TEST_P(JournalFails, WhoDiesAndWhoComesMeanwhileWaits) {
  Swarm swarm(swarm_of(config(), make_fake_model));
  until_then(swarm);
  const SimNodeId gone = swarm.node(1, 1);
  begin(swarm);
  swarm.cluster().runtime().run_for(1s);
  swarm.kill(gone);
  swarm.cluster().add_peer({});
  swarm.cluster().runtime().run_for(14s);
  EXPECT_EQ(swarm.delivered(MessageKind::kShutdown), 0U);
  end(swarm);
  expect_reference(swarm, config());
  EXPECT_EQ(events(swarm, "peer_lost"), 1U) << history(swarm);
  EXPECT_EQ(events(swarm, "peer_joined"), 5U) << history(swarm);
}

// The coordinator dies, and its next one finds a journal that it can read and not write.
TEST_P(JournalFails, ACoordinatorThatBeginsAgainWaits) {
  Swarm swarm(swarm_of(config(), make_fake_model));
  until_then(swarm);
  begin(swarm);
  swarm.cluster().runtime().run_for(100ms);
  swarm.cluster().kill_coordinator();
  swarm.cluster().restart_coordinator();
  swarm.cluster().runtime().run_for(8s);
  end(swarm);
  expect_reference(swarm, config());
  EXPECT_EQ(events(swarm, "peer_resumed"), 4U) << history(swarm);
  EXPECT_EQ(events(swarm, "peer_lost"), 0U) << history(swarm);
}

// Whoever is interrupted twice ends, however full the disk is.
TEST_P(JournalFails, WhoInterruptsItDoesNotWait) {
  const MarkExpected ended("settling.ended_without_journal");
  Swarm swarm(swarm_of(config(), make_fake_model));
  until_then(swarm);
  begin(swarm);
  swarm.cluster().runtime().run_for(1s);
  swarm.cluster().coordinator().request_stop(false);
  swarm.cluster().runtime().run_for(3s);
  EXPECT_FALSE(swarm.cluster().outcome().has_value());
  swarm.cluster().coordinator().request_stop(true);
  ASSERT_TRUE(swarm.until([&] { return swarm.cluster().outcome().has_value(); }, 5s));
  EXPECT_EQ(swarm.cluster().outcome()->exit_code, 130);
  EXPECT_EQ(swarm.delivered(MessageKind::kShutdown), 4U) << "its peers hear of it";
}

INSTANTIATE_TEST_SUITE_P(
    AtAnyMoment, JournalFails,
    testing::Combine(testing::Values(Wrong::kFull, Wrong::kSilent), testing::Values(0U, 1U),
                     testing::Values(MessageKind::kReport, MessageKind::kSeal,
                                     MessageKind::kReduced, MessageKind::kStepped)),
    [](const auto& info) {
      return fmt::format("{}Delay{}{}", std::get<0>(info.param) == Wrong::kFull ? "Full" : "Silent",
                         std::get<1>(info.param), to_string(std::get<2>(info.param)));
    });

// A write that takes long holds up what waits for it, and nothing else.
TEST(JournalTakesTime, TheRunIsTheSame) {
  for (const std::uint32_t delay : {0U, 1U})
    for (const Duration time : {1ms, 50ms, 900ms}) {
      SCOPED_TRACE(fmt::format("{} s, delay {}", to_seconds(time), delay));
      const RunConfig config = run_of({2, 2}, delay);
      SimClusterOptions options = swarm_of(config, make_fake_model);
      options.journal_time = time;
      Swarm swarm(std::move(options));
      expect_reference(swarm, config);
      EXPECT_EQ(events(swarm, "peer_lost"), 0U) << history(swarm);
    }
}

// ---- A lead that has to be renewed --------------------------------------------------------------

SimClusterOptions leased(const RunConfig& config) {
  SimClusterOptions options = swarm_of(config, make_fake_model);
  options.lease = 5s;
  return options;
}

// Nobody else leads: the same process does again, and its peers keep what they hold.
TEST(LeadIsCutOff, WhoCantRenewLetsGoWithoutAWordAndLeadsAgain) {
  const MarkExpected expired("leadership.expired");
  for (const std::uint32_t delay : {0U, 1U})
    for (const Duration time : {2s, 6s, 30s}) {
      SCOPED_TRACE(fmt::format("{} s, delay {}", to_seconds(time), delay));
      const RunConfig config = run_of({2, 2}, delay);
      Swarm swarm(leased(config));
      swarm.until_committed(2);
      swarm.cluster().lead().cut_off(kCoordinatorNode, true);
      swarm.cluster().runtime().run_for(time);
      EXPECT_EQ(swarm.cluster().has_coordinator(), time < 5s);
      EXPECT_EQ(swarm.delivered(MessageKind::kShutdown), 0U);
      EXPECT_EQ(swarm.delivered(MessageKind::kFenced), 0U);
      swarm.cluster().lead().cut_off(kCoordinatorNode, false);
      ASSERT_TRUE(swarm.until([&] { return swarm.cluster().has_coordinator(); }));
      expect_reference(swarm, config);
      EXPECT_EQ(events(swarm, "peer_resumed"), time < 5s ? 0U : 4U) << history(swarm);
      if (testing::Test::HasFailure()) return;
    }
}

// A standby leads as soon as the lease is over. The one before reaches its peers all the time, and
// has decided a commit that it could not write down.
TEST(LeadIsCutOff, TheStandbyFindsThePeersThatTheOldLeaderLetGo) {
  const MarkExpected expired("leadership.expired");
  for (const std::uint32_t delay : {0U, 1U})
    for (const MessageKind kind :
         {MessageKind::kReport, MessageKind::kSeal, MessageKind::kReduced, MessageKind::kStepped}) {
      SCOPED_TRACE(fmt::format("{}, delay {}", to_string(kind), delay));
      RunConfig config = run_of({2, 2}, delay);
      config.net.standby = {kStandbyAddress};
      Swarm swarm(leased(config));
      swarm.until_committed(2);
      ASSERT_TRUE(swarm.until_delivered(kind, 1));
      swarm.cluster().lead().cut_off(kCoordinatorNode, true);
      swarm.cluster().runtime().run_for(5s + 1ms);
      EXPECT_EQ(swarm.delivered(MessageKind::kShutdown), 0U);
      EXPECT_EQ(swarm.delivered(MessageKind::kFenced), 0U);
      swarm.cluster().take_over();
      expect_reference(swarm, config);
      EXPECT_EQ(events(swarm, "peer_resumed"), 4U) << history(swarm);
      EXPECT_EQ(events(swarm, "peer_lost"), 0U) << history(swarm);
      if (testing::Test::HasFailure()) return;
    }
}

}  // namespace
}  // namespace swarmline
