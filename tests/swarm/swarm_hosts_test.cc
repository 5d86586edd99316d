// Machines of their own: network namespaces, joined by pairs of virtual Ethernet interfaces. What
// is done on each of them, its user could do: the line that the coordinator prints is typed there.
// Needs root and ip and tc (iproute2); skips, with the reason, elsewhere.
#include <csignal>
#include <cstdlib>
#include <set>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/store/journal.h"
#include "tests/swarm/hosts.h"
#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

class SwarmHosts : public HostsTest {
 protected:
  SwarmHosts() : HostsTest(3) {}
  static std::size_t occurrences(const std::string& text, const std::string& what) {
    std::size_t count = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
      ++count;
    return count;
  }
};

const std::vector<std::string> kRun = {"model.dtype=fp64", "pipeline.stages=3", "model.layers=6",
                                       "net.listen=\"0.0.0.0:0\""};

TEST_F(SwarmHosts, ThreeHostsJoinByThePrintedLineAlone) {
  const SwarmFolder swarm(kRun);
  Program coordinator = start_coordinator(swarm);
  const std::string line = printed_line(coordinator);
  EXPECT_NE(line.find("@10.77.0.1:"), std::string::npos) << line;
  std::vector<Program> peers;
  for (int host = 0; host < 3; ++host)
    peers.push_back(hosts_->type(swarm, host, fmt::format("peer-{}", host), line));
  EXPECT_EQ(coordinator.wait(2 * kPatienceSeconds), 0) << coordinator.output();
  for (Program& peer : peers) EXPECT_EQ(peer.wait(), 0) << peer.output();
  expect_reference(swarm);
  const auto journal = open_sqlite_journal(swarm.run().journal());
  ASSERT_TRUE(journal.has_value());
  const auto seats = (*journal)->seats();
  ASSERT_TRUE(seats.has_value());
  ASSERT_EQ(seats->size(), 3U);
  std::set<std::string> hosts;
  for (const SeatRecord& seat : *seats) {
    hosts.insert(seat.address.substr(0, seat.address.find(':')));
    EXPECT_EQ(seat.key.size(), 64U);
  }
  EXPECT_EQ(hosts, (std::set<std::string>{"10.77.0.1", "10.77.0.2", "10.77.0.3"}));
}

// Two of three take no connections, as behind a router: who needs them is dialled by them.
TEST_F(SwarmHosts, PeersWithoutOpenPortsJoinByThePrintedLineAlone) {
  if (::access(kTc, X_OK) != 0) GTEST_SKIP() << "there is no " << kTc;
  std::vector<std::string> run = kRun;
  run.emplace_back("model.tied_embeddings=false");  // the first stage and the last need no link
  const SwarmFolder swarm(run);
  if (!hosts_->close_ports_of(1) || !hosts_->close_ports_of(2))
    GTEST_SKIP() << "this kernel has not the queues that a firewall is made of here";
  Program coordinator = start_coordinator(swarm);
  const std::string line = printed_line(coordinator);
  std::vector<Program> peers;
  for (const int host : {1, 0, 2}) {  // in the order of the stages
    peers.push_back(hosts_->type(swarm, host, fmt::format("peer-{}", host), line));
    EXPECT_TRUE(peers.back().wait_for_output("seated at stage"));
  }
  EXPECT_EQ(coordinator.wait(2 * kPatienceSeconds), 0) << coordinator.output();
  for (Program& peer : peers) {
    EXPECT_EQ(peer.wait(), 0) << peer.output();
    EXPECT_LE(occurrences(peer.output(), "\n"), 60U) << peer.output();
  }
  EXPECT_EQ(coordinator.output().find("out_of_reach"), std::string::npos) << coordinator.output();
  expect_reference(swarm);
}

// Neither of two neighbours takes connections: they meet at a relay, which is started by the same
// string.
TEST_F(SwarmHosts, TwoPeersWithoutOpenPortsMeetAtARelay) {
  if (::access(kTc, X_OK) != 0) GTEST_SKIP() << "there is no " << kTc;
  const SwarmFolder swarm(
      {"model.dtype=fp64", "net.listen=\"0.0.0.0:0\"", "net.heartbeat_seconds=0.1"});
  if (!hosts_->close_ports_of(1) || !hosts_->close_ports_of(2))
    GTEST_SKIP() << "this kernel has not the queues that a firewall is made of here";
  Program coordinator = start_coordinator(swarm);
  const std::string line = printed_line(coordinator);
  std::string of_relay = line;
  of_relay.replace(0, std::string("swarmline peer").size(), "swarmline relay");
  Program relay = hosts_->type(swarm, 0, "relay", of_relay);
  EXPECT_TRUE(relay.wait_for_output("relaying for the run"));
  std::vector<Program> peers;
  for (const int host : {1, 2})
    peers.push_back(hosts_->type(swarm, host, fmt::format("peer-{}", host), line));
  EXPECT_EQ(coordinator.wait(2 * kPatienceSeconds), 0) << coordinator.output();
  for (Program& peer : peers) EXPECT_EQ(peer.wait(), 0) << peer.output();
  EXPECT_EQ(relay.wait(), 0) << relay.output();
  EXPECT_EQ(relay.output().find("relayed 0 links"), std::string::npos) << relay.output();
  const auto status = swarm.status();
  ASSERT_TRUE(status.has_value());
  std::uint64_t relayed = 0;
  for (const StageStatus& stage : status->stages)
    for (const PeerStatus& peer : stage.peers) relayed += peer.relayed_bytes;
  EXPECT_GT(relayed, 0U) << "what they sent each other, as they said last";
  expect_reference(swarm);
}

// One of two of its stage dies meanwhile, and comes back by the line from before.
TEST_F(SwarmHosts, TheKeyIsChangedInMidRunAndNobodyNeedsAnotherLine) {
  const SwarmFolder swarm(
      {"model.dtype=fp64", "net.listen=\"0.0.0.0:0\"", "pipeline.peers=2", "run.steps=80"});
  Program coordinator = start_coordinator(swarm);
  const std::string line = printed_line(coordinator) + " --config " + swarm.emulating(4, 8).back();
  std::vector<Program> peers;
  for (const int host : {0, 1, 2, 1})
    peers.push_back(hosts_->type(swarm, host, fmt::format("peer-{}", peers.size()), line));
  const auto train = [&](std::size_t steps) {
    EXPECT_TRUE(comes_true([&] { return swarm.log("step").size() >= steps; }));
  };
  train(2);
  Program rotates = hosts_->type(swarm, 0, "rotate", "swarmline keys rotate " + swarm.run().path());
  EXPECT_EQ(rotates.wait(), 0);
  EXPECT_NE(rotates.output().find(" shows it;"), std::string::npos) << rotates.output();
  for (Program& peer : peers) EXPECT_TRUE(peer.wait_for_output("certified its seat anew"));
  peers.back().signal(SIGKILL);
  peers.back().wait();
  peers.pop_back();
  train(swarm.log("step").size() + 2);
  peers.push_back(hosts_->type(swarm, 2, "peer-again", line));
  EXPECT_TRUE(peers.back().wait_for_output("seated at stage"));
  EXPECT_EQ(coordinator.wait(2 * kPatienceSeconds), 0) << coordinator.output();
  for (Program& peer : peers) EXPECT_EQ(peer.wait(), 0) << peer.output();
  expect_reference(swarm);
}

// Two of three hosts can't serve, and their users are told why where they sit, and on the
// coordinator's; the same line serves them when they have mended it.
TEST_F(SwarmHosts, WhoHasOtherDataOrNoDeviceIsToldAndJoinsByTheSameLineLater) {
  const SwarmFolder swarm(kRun);
  Program coordinator = start_coordinator(swarm);
  const std::string line = printed_line(coordinator);
  swarm.temp().write("other/text", "another text");
  Program other = hosts_->type(swarm, 1, "other", line + " --data " + swarm.temp().at("other"));
  EXPECT_EQ(other.wait(), 3);
  EXPECT_NE(other.output().find("text has another size"), std::string::npos) << other.output();
  Program lacking = hosts_->type(swarm, 2, "no-device", line + " --device cuda");
  EXPECT_EQ(lacking.wait(), 3);
  EXPECT_NE(lacking.output().find("no CUDA"), std::string::npos) << lacking.output();
  for (const int host : {1, 2}) EXPECT_TRUE(coordinator.wait_for_output(Hosts::address(host)));
  EXPECT_TRUE(coordinator.wait_for_output("text has another size"));
  EXPECT_TRUE(coordinator.wait_for_output("no CUDA"));
  std::vector<Program> peers;
  for (int host = 0; host < 3; ++host)
    peers.push_back(hosts_->type(swarm, host, fmt::format("peer-{}", host), line));
  EXPECT_EQ(coordinator.wait(2 * kPatienceSeconds), 0) << coordinator.output();
  for (Program& peer : peers) EXPECT_EQ(peer.wait(), 0) << peer.output();
  expect_reference(swarm);
}

// The one peer of a stage: the run waits for it, and goes back to nothing. A fourth joins by then.
TEST_F(SwarmHosts, AHostWhoseCableIsPulledOutComesBackAndAFourthPeerJoins) {
  std::vector<std::string> run = kRun;
  run.emplace_back("run.steps=60");
  const SwarmFolder swarm(run);
  Program coordinator = start_coordinator(swarm);
  const std::string line = printed_line(coordinator) + " --config " + swarm.emulating(4, 8).back();
  std::vector<Program> peers;
  for (int host = 0; host < 3; ++host)
    peers.push_back(hosts_->type(swarm, host, fmt::format("peer-{}", host), line));
  const auto train = [&](std::size_t steps) {
    EXPECT_TRUE(comes_true([&] { return swarm.log("step").size() >= steps; }));
  };
  train(3);
  ASSERT_TRUE(hosts_->plug(2, false));
  EXPECT_TRUE(coordinator.wait_for_output("nothing is heard from the last peers of stage"));
  ASSERT_TRUE(hosts_->plug(2, true));
  train(swarm.log("step").size() + 2);
  peers.push_back(hosts_->type(swarm, 1, "fourth", line));
  EXPECT_TRUE(peers.back().wait_for_output("seated at stage"));
  EXPECT_EQ(coordinator.wait(2 * kPatienceSeconds), 0) << coordinator.output();
  for (Program& peer : peers) EXPECT_EQ(peer.wait(), 0) << peer.output();
  EXPECT_TRUE(swarm.log("new_era").empty()) << coordinator.output() << peers[2].output();
  expect_reference(swarm);
}

TEST_F(SwarmHosts, OverIpv6ByThePrintedLineAlone) {
  if (!hosts_->speak_ipv6()) GTEST_SKIP() << "this kernel has no IPv6";
  std::vector<std::string> run = kRun;
  run.back() = "net.listen=\"[fd77::1]:0\"";
  const SwarmFolder swarm(run);
  Program coordinator = start_coordinator(swarm);
  const std::string line = printed_line(coordinator);
  EXPECT_NE(line.find("@[fd77::1]:"), std::string::npos) << line;
  std::vector<Program> peers;
  for (int host = 0; host < 3; ++host)
    peers.push_back(hosts_->type(swarm, host, fmt::format("peer-{}", host), line));
  EXPECT_EQ(coordinator.wait(2 * kPatienceSeconds), 0) << coordinator.output();
  for (Program& peer : peers) EXPECT_EQ(peer.wait(), 0) << peer.output();
  EXPECT_EQ(coordinator.output().find("10.77.0."), std::string::npos) << coordinator.output();
  expect_reference(swarm);
}

// What a user of another machine sees who has only the address.
TEST_F(SwarmHosts, TheAddressAloneJoinsNobody) {
  const SwarmFolder swarm(kRun);
  Program coordinator = start_coordinator(swarm);
  const std::string line = printed_line(coordinator);
  std::string address = line.substr(line.find('@') + 1);
  address.pop_back();
  Program told = hosts_->type(swarm, 1, "told", "swarmline peer --join " + address);
  EXPECT_EQ(told.wait(), 2);
  EXPECT_NE(told.output().find("join by the string"), std::string::npos) << told.output();
  Program insists = hosts_->type(swarm, 1, "insists",
                                 "swarmline peer --insecure --join-patience 1 --join " + address);
  EXPECT_EQ(insists.wait(), 1) << insists.output();
  EXPECT_NE(coordinator.output().find("a link was not taken"), std::string::npos)
      << coordinator.output();
  coordinator.signal(SIGTERM);
  coordinator.wait();
}

}  // namespace
}  // namespace swarmline
