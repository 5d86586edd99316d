// Swarms that lose a process, are interrupted or stopped: they go on while there is a peer for each
// stage, else end soon and say why; nothing is left behind.
#include <chrono>
#include <csignal>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

constexpr double kSilenceSeconds = 4;
constexpr double kSoonSeconds = 20;  // a loaded machine included; nobody waits for a minute

// A run that would go on for hours, and leaves the machine mostly idle.
class SwarmLosses : public testing::Test {
 protected:
  SwarmLosses()
      : swarm_({"run.steps=1000000", "pipeline.peers=[1, 2]", "net.peer_silence_seconds=4",
                "net.peers_wait_seconds=5", "log.level=warn"}) {
    adopt_orphans();
    launch_.emplace(swarm_.start("launch", SwarmFolder::without_restarts(swarm_.emulating(4, 8))));
  }
  ~SwarmLosses() override {
    launch_.reset();
    expect_nothing_left();
  }

  // The process of the peer that the status shows, once the run trains.
  struct Victim {
    pid_t pid = 0;
    std::uint64_t peer = 0;
    std::uint64_t stage = 0;
    std::string name;
  };
  Victim peer_of(std::uint64_t stage) {
    const auto status = swarm_.wait_for_step(2);
    if (!status) return {};
    const PeerStatus& peer = status->stages.at(stage).peers.at(0);
    return {process_with(launch_->pid(), "--name " + peer.name), peer.peer, stage, peer.name};
  }

  // The stage's only peer is lost: the others share the stages, from the beginning.
  void expect_gone_back(const Victim& victim, double seconds_max) {
    const auto status = swarm_.wait_until(
        [](const RunStatus& now) { return now.era == 1 && now.step >= 2; }, seconds_max);
    ASSERT_TRUE(status);
    const std::string who = "peer " + std::to_string(victim.peer) + " \"" + victim.name + "\"";
    EXPECT_NE(status->era_sentence.find(who), std::string::npos) << status->era_sentence;
    EXPECT_TRUE(launch_->wait_for_output("era 1 begins with version 0"));
    launch_->signal(SIGINT);
    EXPECT_EQ(launch_->wait(), 0) << launch_->output() << swarm_.logs();
  }

  SwarmFolder swarm_;
  std::optional<Program> launch_;
};

// One of two of its stage: the run goes on without it.
TEST_F(SwarmLosses, AKilledPeerIsLeftBehind) {
  const Victim victim = peer_of(1);
  ASSERT_NE(victim.pid, 0);
  const auto before = swarm_.status();
  ASSERT_TRUE(before);
  ::kill(victim.pid, SIGKILL);
  ASSERT_TRUE(swarm_.wait_for_step(before->step + 20)) << swarm_.logs();
  launch_->signal(SIGINT);
  EXPECT_EQ(launch_->wait(), 0) << launch_->output() << swarm_.logs();
}

TEST_F(SwarmLosses, AKilledSourceTakesTheRunBack) {
  const Victim victim = peer_of(0);
  ASSERT_NE(victim.pid, 0);
  ::kill(victim.pid, SIGKILL);
  expect_gone_back(victim, kSoonSeconds);
}

TEST_F(SwarmLosses, AStoppedSourceTakesTheRunBackAfterItsSilence) {
  const Victim victim = peer_of(0);
  ASSERT_NE(victim.pid, 0);
  ::kill(victim.pid, SIGSTOP);
  expect_gone_back(victim, kSilenceSeconds + kSoonSeconds);
  ::kill(victim.pid, SIGKILL);
}

// One peer is left for two stages, and nobody joins.
TEST_F(SwarmLosses, ARunWithTooFewPeersEndsWithASentence) {
  const auto status = swarm_.wait_for_step(2);
  ASSERT_TRUE(status);
  for (const PeerStatus& peer : status->stages.at(1).peers)
    ::kill(process_with(launch_->pid(), "--name " + peer.name), SIGKILL);
  EXPECT_EQ(launch_->wait(kSoonSeconds), 1);
  const std::string said = launch_->output();
  EXPECT_NE(said.find("of stage 1 ("), std::string::npos) << said;
  EXPECT_NE(said.find("has no peer and nobody joined it within 5 s"), std::string::npos) << said;
  EXPECT_EQ(descendants(::getpid()).size(), 0U) << "launch waits for its children";
  const auto ended = swarm_.status();
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->state, "failed");
}

TEST_F(SwarmLosses, ControlCDrainsAndWritesACheckpoint) {
  ASSERT_TRUE(swarm_.wait_for_step(2));
  launch_->signal(SIGINT);
  EXPECT_EQ(launch_->wait(), 0) << launch_->output() << swarm_.logs();
  const auto status = swarm_.status();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, "done");
  EXPECT_GE(status->step, 2U);
  EXPECT_EQ(swarm_.log("step").size(), status->step);
  EXPECT_TRUE(status->checkpoint.ends_with("step-" + std::to_string(status->step)))
      << status->checkpoint;
  EXPECT_TRUE(std::filesystem::exists(status->checkpoint + "/manifest.json"));
}

TEST_F(SwarmLosses, ASecondControlCLeavesAtOnce) {
  const Victim victim = peer_of(1);
  ASSERT_NE(victim.pid, 0);
  ::kill(victim.pid, SIGSTOP);  // the step can't end
  launch_->signal(SIGINT);
  ASSERT_TRUE(launch_->wait_for_output("Finishing the step"));
  EXPECT_TRUE(launch_->running());
  launch_->signal(SIGINT);
  EXPECT_EQ(launch_->wait(kSoonSeconds), 130);
}

TEST_F(SwarmLosses, AKilledLaunchLeavesNoChildren) {
  ASSERT_TRUE(swarm_.wait_for_step(2));
  ASSERT_EQ(descendants(launch_->pid()).size(), 4U);
  launch_->signal(SIGKILL);
  EXPECT_EQ(launch_->wait(), 128 + SIGKILL);
  expect_nothing_left();
}

TEST_F(SwarmLosses, StopAndStatusSpeakToALiveRun) {
  ASSERT_TRUE(swarm_.wait_for_step(1));
  const Ended shown =
      run_program(swarm_.temp(), "status", {"status", swarm_.run().path(), "--json"});
  EXPECT_EQ(shown.code, 0) << shown.output;
  const auto live = parse_status(shown.output);
  ASSERT_TRUE(live.has_value()) << shown.output;
  EXPECT_EQ(live->run, "small");
  EXPECT_EQ(live->state, "training");
  EXPECT_EQ(live->steps, 1000000U);
  EXPECT_EQ(live->peers(), 3U);

  const Ended stopped = run_program(swarm_.temp(), "stop", {"stop", swarm_.run().path()});
  EXPECT_EQ(stopped.code, 0) << stopped.output;
  EXPECT_EQ(launch_->wait(), 0) << launch_->output();
  const auto status = swarm_.status();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, "done");
  EXPECT_TRUE(std::filesystem::exists(status->checkpoint + "/manifest.json"));

  const Ended again = run_program(swarm_.temp(), "stop2", {"stop", swarm_.run().path()});
  EXPECT_NE(again.code, 0) << "there is nothing left to stop";
}

TEST_F(SwarmLosses, StopNowLeavesWithoutACheckpoint) {
  ASSERT_TRUE(swarm_.wait_for_step(1));
  const Ended stopped = run_program(swarm_.temp(), "stop", {"stop", swarm_.run().path(), "--now"});
  EXPECT_EQ(stopped.code, 0) << stopped.output;
  EXPECT_EQ(launch_->wait(kSoonSeconds), 130) << launch_->output();
  EXPECT_TRUE(swarm_.log("checkpoint").empty());
}

}  // namespace
}  // namespace swarmline
