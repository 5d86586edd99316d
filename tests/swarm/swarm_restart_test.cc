// Coordinators of real runs are killed and begun again; the runs end as if nothing had happened.
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <unistd.h>

#include <gtest/gtest.h>

#include "engine/store/files.h"
#include "tests/net/own_port.h"
#include "tests/store/etcd_process.h"
#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

std::vector<std::string> run_of(std::uint32_t delay) {
  return {"run.steps=60",
          "pipeline.peers=2",
          "pipeline.delay=" + std::to_string(delay),
          "checkpoint.every_steps=16",
          "net.peer_silence_seconds=60",
          "model.dtype=fp64",
          "model.bias=false"};
}

// Nothing was counted twice or lost.
void expect_each_step_once(const SwarmFolder& swarm, std::uint64_t steps) {
  std::map<std::uint64_t, int> lines;
  for (const JsonValue& line : swarm.log("step")) ++lines[line["step"].count()];
  EXPECT_LE(lines.size(), steps);
  EXPECT_GE(lines.size() + 4, steps);  // killed between the journal and the log, a line is missing
  for (const auto& [step, count] : lines) EXPECT_EQ(count, 1) << "step " << step;
}

class SwarmRestart : public testing::Test {
 protected:
  SwarmRestart() { adopt_orphans(); }
  ~SwarmRestart() override { expect_nothing_left(); }
};
class SwarmRestartDelay : public SwarmRestart, public testing::WithParamInterface<std::uint32_t> {};

TEST_P(SwarmRestartDelay, LaunchStartsAKilledCoordinatorAgain) {
  const SwarmFolder swarm(run_of(GetParam()));
  Program launch = swarm.start("launch", swarm.emulating(2, 4));
  for (const std::uint64_t step : {3U, 20U, 40U}) {
    ASSERT_TRUE(swarm.wait_for_step(step)) << launch.output() << swarm.logs();
    ::kill(process_with(launch.pid(), "swarmline coordinator"), SIGKILL);
  }
  ASSERT_EQ(launch.wait(), 0) << launch.output() << swarm.logs();
  EXPECT_NE(launch.output().find("the coordinator was ended by signal 9; started again"),
            std::string::npos)
      << launch.output();
  EXPECT_EQ(swarm.log("begun_again").size(), 3U);
  EXPECT_TRUE(swarm.log("peer_lost").empty());
  EXPECT_TRUE(swarm.log("new_era").empty());
  expect_each_step_once(swarm, 60);
  expect_reference(swarm);
}

using Peers = std::vector<std::unique_ptr<Program>>;

Peers four_peers(const SwarmFolder& swarm, Program& coordinator) {
  Peers peers;
  if (!coordinator.wait_for_output("swarmline peer --join")) return peers;
  const auto address = swarm.run().read_address();
  EXPECT_TRUE(address.has_value());
  if (!address) return peers;
  const std::string string = swarm.run().join_string();
  const std::string join = file_exists(string) ? string : to_string(*address);
  for (const char* name : {"a", "b", "c", "d"})
    peers.push_back(std::make_unique<Program>(
        swarm.temp(), name,
        std::vector<std::string>{"peer", "--data-root", "/", "--join", join, "--name", name,
                                 "--emulate-forward-ms", "2", "--emulate-backward-ms", "4"}));
  return peers;
}

TEST_P(SwarmRestartDelay, TheSameCommandGoesOnWithThePeersThatAreThere) {
  const SwarmFolder swarm(run_of(GetParam()));
  std::optional<Program> coordinator(swarm.start("coordinator"));
  const Peers peers = four_peers(swarm, *coordinator);
  ASSERT_TRUE(swarm.wait_for_step(5)) << coordinator->output();
  coordinator->signal(SIGKILL);
  EXPECT_EQ(coordinator->wait(), 128 + SIGKILL);
  coordinator.emplace(swarm.start("coordinator"));
  EXPECT_EQ(coordinator->wait(), 0) << coordinator->output();
  for (const auto& peer : peers) EXPECT_EQ(peer->wait(), 0) << peer->output();
  expect_each_step_once(swarm, 60);
  expect_reference(swarm);
}

// A coordinator in mid-run, and one that stands by.
class Pair {
 public:
  explicit Pair(std::vector<std::string> config)
      : standby_address_(free_address()),
        swarm_(with_standby(std::move(config), standby_address_)),
        coordinator_(swarm_.start("coordinator")),
        peers_(four_peers(swarm_, coordinator_)),
        standby_(swarm_.temp(), "standby",
                 swarm_.arguments("coordinator", {"--standby", "--set",
                                                  "net.listen=\"" + standby_address_ + "\""})) {
    EXPECT_TRUE(standby_.wait_for_output("standing by"));
    EXPECT_TRUE(swarm_.wait_for_step(5)) << coordinator_.output();
    EXPECT_TRUE(standby_.running());
  }
  Program& coordinator() { return coordinator_; }
  bool begins_again() const {  // the standby leads
    return comes_true([this] { return !swarm_.log("begun_again").empty(); });
  }
  // The standby ends the run with the peers that were there.
  void expect_taken_over() {
    EXPECT_EQ(standby_.wait(), 0) << standby_.output();
    for (const auto& peer : peers_) EXPECT_EQ(peer->wait(), 0) << peer->output();
  }
  void expect_nothing_lost() const {
    EXPECT_EQ(swarm_.log("begun_again").size(), 1U);
    EXPECT_TRUE(swarm_.log("new_era").empty());
    expect_each_step_once(swarm_, 60);
    expect_reference(swarm_);
  }

 private:
  static std::vector<std::string> with_standby(std::vector<std::string> config,
                                               const std::string& address) {
    config.push_back("net.standby=[\"" + address + "\"]");
    return config;
  }

  const std::string standby_address_;
  const SwarmFolder swarm_;
  Program coordinator_;
  const Peers peers_;
  Program standby_;
};

TEST_P(SwarmRestartDelay, AStandbyTakesOverAtItsOwnAddress) {
  Pair pair(run_of(GetParam()));
  ASSERT_FALSE(HasFailure());
  pair.coordinator().signal(SIGKILL);
  EXPECT_EQ(pair.coordinator().wait(), 128 + SIGKILL);
  pair.expect_taken_over();
  pair.expect_nothing_lost();
}

// The coordinator and its standby are one run to who joined by the string: they have one key.
TEST_F(SwarmRestart, AStandbyTakesOverWhereLinksHaveKeys) {
  std::vector<std::string> config = run_of(1);
  config.emplace_back("security.loopback=true");
  Pair pair(config);
  ASSERT_FALSE(HasFailure());
  pair.coordinator().signal(SIGKILL);
  EXPECT_EQ(pair.coordinator().wait(), 128 + SIGKILL);
  pair.expect_taken_over();
  pair.expect_nothing_lost();
}

// The control store is an etcd: the leader is stopped for longer than its lease, the standby goes
// on with its peers, and the former leader ends when it wakes, without a word to anybody: refused
// where the other one leads, not needed where the run is over.
class SwarmLease : public SwarmRestart, public testing::WithParamInterface<bool> {};

TEST_P(SwarmLease, AStoppedLeaderIsReplacedAndEndsWhenItWakes) {
  if (const std::string why = EtcdProcess::missing(); !why.empty()) GTEST_SKIP() << why;
  const bool wakes_at_once = GetParam();
  const EtcdProcess etcd;
  std::vector<std::string> config = run_of(1);
  config.insert(config.end(),
                {"run.etcd=[\"" + etcd.endpoint() + "\"]", "run.etcd_lease_seconds=2"});
  Pair pair(config);
  ASSERT_FALSE(HasFailure());
  pair.coordinator().signal(SIGSTOP);
  if (wakes_at_once) {
    ASSERT_TRUE(pair.begins_again());
    pair.coordinator().signal(SIGCONT);
    EXPECT_EQ(pair.coordinator().wait(), 3) << pair.coordinator().output();
  }
  pair.expect_taken_over();
  if (!wakes_at_once) {
    pair.coordinator().signal(SIGCONT);
    EXPECT_EQ(pair.coordinator().wait(), 0) << pair.coordinator().output();
  }
  pair.expect_nothing_lost();
}

// Who was killed still has the lead for its lease: whoever is started in its place waits for that.
TEST_F(SwarmRestart, TheSameCommandGoesOnWithinTheLeaseOfWhoDied) {
  if (const std::string why = EtcdProcess::missing(); !why.empty()) GTEST_SKIP() << why;
  const EtcdProcess etcd;
  std::vector<std::string> config = run_of(1);
  config.insert(config.end(),
                {"run.etcd=[\"" + etcd.endpoint() + "\"]", "run.etcd_lease_seconds=3"});
  const SwarmFolder swarm(config);
  std::optional<Program> coordinator(swarm.start("coordinator"));
  const Peers peers = four_peers(swarm, *coordinator);
  ASSERT_TRUE(swarm.wait_for_step(5)) << coordinator->output();
  coordinator->signal(SIGKILL);
  coordinator->wait();
  coordinator.emplace(swarm.start("coordinator"));
  EXPECT_EQ(coordinator->wait(), 0) << coordinator->output();
  for (const auto& peer : peers) EXPECT_EQ(peer->wait(), 0) << peer->output();
  expect_each_step_once(swarm, 60);
  expect_reference(swarm);
}

INSTANTIATE_TEST_SUITE_P(Wakes, SwarmLease, testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "WhileTheOtherLeads" : "WhenTheRunIsOver");
});
INSTANTIATE_TEST_SUITE_P(Delay, SwarmRestartDelay, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
