// Health of living runs, from their status.
#include "tools/doctor/run_checks.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace swarmline {
namespace {

class Health : public ::testing::Test {
 protected:
  Health() {
    status.run = "r";
    status.state = "training";
    status.step = 5;
    status.steps = 10;
    status.wall_seconds = 1000;
    status.checkpoint = "runs/r/checkpoints/step-5";
    for (std::uint64_t stage = 0; stage < 2; ++stage) {
      StageStatus& made = status.stages.emplace_back();
      made.stage = stage;
      made.wanted = 3;
      for (std::uint64_t i = 0; i < 3; ++i) {
        PeerStatus& peer = made.peers.emplace_back();
        peer.peer = 10 * stage + i + 1;
        peer.name = "p" + std::to_string(peer.peer);
        peer.state = "ready";
        peer.reach = "yes";
        peer.speed = 1;
      }
    }
  }
  Finding found(const std::string& check) {
    for (Finding& finding : judge_run(status))
      if (finding.check == check) return finding;
    return {check, CheckOutcome::kSkipped, "there is no such check", ""};
  }

  RunStatus status;
};

TEST_F(Health, OfAHealthyRun) {
  for (const Finding& finding : judge_run(status))
    EXPECT_EQ(finding.verdict, CheckOutcome::kOk) << finding.check << ": " << finding.what;
}

TEST_F(Health, OfARunThatIsOverOrDied) {
  status.state = "died";
  status.sentence = "nobody coordinates it";
  const std::vector<Finding> findings = judge_run(status);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].verdict, CheckOutcome::kFail);
  EXPECT_NE(findings[0].what.find("nobody coordinates it"), std::string::npos);
  status.state = "done";
  EXPECT_EQ(judge_run(status).at(0).verdict, CheckOutcome::kOk);
}

TEST_F(Health, OfAJournalThatCannotBeWritten) {
  status.journal = "disk full";
  EXPECT_EQ(found("journal").verdict, CheckOutcome::kFail);
}

TEST_F(Health, OfStagesWithOnePeerOrNone) {
  status.stages[1].peers.resize(1);
  EXPECT_EQ(found("stages").verdict, CheckOutcome::kWarn);
  EXPECT_NE(found("stages").what.find("stage 1"), std::string::npos);
  EXPECT_EQ(found("protection").verdict, CheckOutcome::kWarn);
  status.stages[1].shadows.push_back({.peer = 1, .name = "p1", .serves = 0, .state = "ready"});
  EXPECT_EQ(found("protection").verdict, CheckOutcome::kOk);
  status.stages[1].peers[0].state = "lost";
  EXPECT_EQ(found("stages").verdict, CheckOutcome::kFail);
}

TEST_F(Health, OfAStageThatNothingProtects) {
  status.stages[0].peers.resize(1);
  status.checkpoint.clear();
  EXPECT_NE(found("protection").what.find("no checkpoint"), std::string::npos);
}

TEST_F(Health, OfPeersThatCannotMeet) {
  status.stages[0].peers[0].reach = "no";
  EXPECT_EQ(found("links").verdict, CheckOutcome::kOk) << "it dials out";
  status.stages[1].peers[0].reach = "no";
  EXPECT_EQ(found("links").verdict, CheckOutcome::kWarn);
  status.relays.push_back({.name = "relay", .address = "h:1"});
  EXPECT_EQ(found("links").verdict, CheckOutcome::kOk);
  status.events.push_back(
      {.wall_seconds = 990, .kind = "out_of_reach", .detail = "peer 1 and peer 11"});
  EXPECT_EQ(found("links").verdict, CheckOutcome::kWarn);
  status.wall_seconds = 5000;
  EXPECT_EQ(found("links").verdict, CheckOutcome::kOk) << "that was long ago";
}

TEST_F(Health, OfAPeerAtThirtyPercent) {
  status.stages[0].peers[2].speed = 0.31;
  EXPECT_EQ(found("speeds").verdict, CheckOutcome::kOk);
  status.stages[0].peers[2].speed = 0.29;
  EXPECT_EQ(found("speeds").verdict, CheckOutcome::kWarn);
  EXPECT_NE(found("speeds").what.find("p3 of stage 0 (29 %)"), std::string::npos)
      << found("speeds").what;
}

TEST_F(Health, OfARunThatRefusedSomebody) {
  status.refused = "peer 4 of stage 1: this machine has no CUDA";
  EXPECT_EQ(found("arrivals").verdict, CheckOutcome::kWarn);
}

TEST_F(Health, OfARunThatWaits) {
  status.state = "waiting";
  status.stages[1].peers.clear();
  EXPECT_EQ(found("run").verdict, CheckOutcome::kWarn);
  EXPECT_EQ(found("stages").verdict, CheckOutcome::kWarn) << "nothing is lost yet";
}

}  // namespace
}  // namespace swarmline
