// A process of a swarm is killed, stopped or interrupted at any moment, from before anybody listens
// to after the last step: the run always ends soon, and nothing stays behind.
#include <csignal>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kLatestMs = 4000;  // after the launch
constexpr double kEndsSeconds = 100;       // launch waits a minute for a peer that never joins

class SwarmAnyMoment : public testing::TestWithParam<std::uint64_t> {};

TEST_P(SwarmAnyMoment, EndsTheRunAndLeavesNothing) {
  adopt_orphans();
  Rng rng(GetParam());
  const SwarmFolder swarm({"run.steps=40", "net.peer_silence_seconds=3", "checkpoint.every_steps=7",
                           "eval.every_steps=5", "net.peers_wait_seconds=10",
                           "pipeline.delay=" + std::to_string(rng.below(2)),
                           "pipeline.peers=" + std::to_string(1 + rng.below(2))});
  Program launch = swarm.start("launch");
  std::this_thread::sleep_for(std::chrono::milliseconds(rng.below(kLatestMs)));

  static constexpr int kSignals[] = {SIGKILL, SIGSTOP, SIGINT};
  const int signal = kSignals[rng.below(3)];
  std::vector<pid_t> processes = descendants(launch.pid());
  // A stopped launch has nobody to end it.
  if (signal != SIGSTOP || processes.empty()) processes.push_back(launch.pid());
  const pid_t victim = processes[rng.below(processes.size())];
  const std::string words = command_line(victim);
  SCOPED_TRACE("signal " + std::to_string(signal) + " to " + words);
  const bool stopped_coordinator =
      signal == SIGSTOP && words.find(" coordinator ") != std::string::npos;
  if (victim == launch.pid() && signal == SIGSTOP) {
    launch.signal(SIGINT);
  } else {
    ::kill(victim, signal);
  }
  if (stopped_coordinator) {  // frozen for longer than a peer may be silent; then it goes on
    std::this_thread::sleep_for(std::chrono::seconds(4));
    ::kill(victim, SIGCONT);
  }
  const int code = launch.wait(kEndsSeconds);
  if (stopped_coordinator) EXPECT_EQ(code, 0) << launch.output() << swarm.logs();
  if (code == 0) {
    const auto status = swarm.status();
    ASSERT_TRUE(status);
    EXPECT_EQ(status->state, "done");
    EXPECT_GE(swarm.log("step").size(), status->step);  // after a new era some are there twice
  }
  expect_nothing_left();
}

INSTANTIATE_TEST_SUITE_P(Seeds, SwarmAnyMoment, testing::Range<std::uint64_t>(1, 13));

}  // namespace
}  // namespace swarmline
