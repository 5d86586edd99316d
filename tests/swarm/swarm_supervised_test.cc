// Launch starts what died again, gives up what dies each time, and leaves a folder from which the
// same command goes on.
#include <algorithm>
#include <csignal>

#include <gtest/gtest.h>

#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

class SwarmSupervised : public testing::Test {
 protected:
  SwarmSupervised() { adopt_orphans(); }
  ~SwarmSupervised() override { expect_nothing_left(); }

  static void kill_named(const Program& launch, const std::string& name) {
    ::kill(process_with(launch.pid(), "--name " + name), SIGKILL);
  }
  static bool serves(const RunStatus& status, const std::string& name) {
    return std::ranges::any_of(status.stages, [&](const StageStatus& stage) {
      return std::ranges::any_of(stage.peers, [&](const PeerStatus& peer) {
        return peer.name == name && peer.state == "ready";
      });
    });
  }
};

// The only peer of a stage is killed twice: nobody but launch brings it back.
TEST_F(SwarmSupervised, AKilledPeerIsStartedAgainAndTheRunEndsWithItsReference) {
  const SwarmFolder swarm({"run.steps=40", "pipeline.peers=1", "model.dtype=fp64",
                           "checkpoint.every_steps=5", "log.level=warn"});
  Program launch = swarm.start("launch", swarm.emulating(3, 6));
  for (const std::uint64_t step : {8U, 20U}) {
    ASSERT_TRUE(swarm.wait_until([&](const RunStatus& now) {
      return now.step >= step && serves(now, "peer-b");
    })) << launch.output()
        << swarm.logs();
    kill_named(launch, "peer-b");
  }
  EXPECT_EQ(launch.wait(), 0) << launch.output() << swarm.logs();
  EXPECT_NE(launch.output().find("peer-b was ended by signal 9; started again"), std::string::npos)
      << launch.output();
  expect_reference(swarm);
}

TEST_F(SwarmSupervised, APeerThatDiesEachTimeIsGivenUpAndTheRunGoesOn) {
  const SwarmFolder swarm({"run.steps=1000000", "pipeline.peers=[1, 2]", "log.level=warn"});
  std::vector<std::string> arguments = swarm.emulating(3, 6);
  arguments.insert(arguments.end(), {"--restarts", "1"});
  Program launch = swarm.start("launch", arguments);
  const auto status = swarm.wait_for_step(2);
  ASSERT_TRUE(status) << launch.output();
  const std::string name = status->stages.at(1).peers.at(0).name;
  kill_named(launch, name);
  ASSERT_TRUE(launch.wait_for_output(name + " was ended by signal 9; started again"));
  ASSERT_TRUE(swarm.wait_until([&](const RunStatus& now) { return serves(now, name); }));
  kill_named(launch, name);
  ASSERT_TRUE(launch.wait_for_output(
      name +
      " was ended by signal 9, 2 times in a row soon after its start; it is not started again"));
  EXPECT_EQ(launch.output().find(name + " was ended by signal 9; see"), std::string::npos)
      << "it was said already: " << launch.output();
  const auto then = swarm.status();
  ASSERT_TRUE(then);
  ASSERT_TRUE(swarm.wait_for_step(then->step + 10)) << launch.output();
  launch.signal(SIGINT);
  EXPECT_EQ(launch.wait(), 0) << launch.output() << swarm.logs();
}

// The second Ctrl-C comes before the drain has ended: it is asked for again when the same command
// starts the run.
TEST_F(SwarmSupervised, TwoInterruptsLeaveAFolderFromWhichTheSameCommandGoesOn) {
  const SwarmFolder swarm({"run.steps=40", "pipeline.peers=1", "model.dtype=fp64",
                           "checkpoint.every_steps=5", "log.level=warn"});
  {
    Program launch = swarm.start("launch", swarm.emulating(3, 6));
    ASSERT_TRUE(swarm.wait_for_step(8)) << launch.output();
    const pid_t peer = process_with(launch.pid(), "--name peer-b");
    ::kill(peer, SIGSTOP);  // the step can't end
    launch.signal(SIGINT);
    ASSERT_TRUE(launch.wait_for_output("Finishing the step"));
    ASSERT_TRUE(swarm.wait_until([](const RunStatus& now) { return now.state == "draining"; }));
    launch.signal(SIGINT);
    ASSERT_EQ(launch.wait(), 130) << launch.output();
  }
  Program again = swarm.start("launch", swarm.emulating(3, 6));
  EXPECT_EQ(again.wait(), 0) << again.output() << swarm.logs();
  EXPECT_EQ(swarm.status()->step, 40U);
  expect_reference(swarm);
}

}  // namespace
}  // namespace swarmline
