// Peers of a stage on two machines (network namespaces), two on each: with net.islands one of each
// machine speaks for both, the line carries half, and the run is the same.
// Needs root and ip (iproute2); skips, with the reason, elsewhere.
#include <csignal>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/swarm/hosts.h"
#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

class SwarmIslands : public HostsTest {
 protected:
  SwarmIslands() : HostsTest(3) {}  // the coordinator's has no peer

  static std::vector<std::string> run_with(const std::string& islands) {
    return {"model.dtype=fp64",
            "pipeline.stages=1",
            "pipeline.peers=4",
            "net.listen=\"0.0.0.0:0\"",
            "checkpoint.every_steps=0",
            "model.d_model=64",
            "net.islands=\"" + islands + "\""};
  }
  // In the order in which they get their seats: left, right, left, right.
  std::vector<Program> start_peers(const SwarmFolder& swarm, const std::string& line) const {
    std::vector<Program> peers;
    for (const int host : {1, 2, 1, 2}) {
      peers.push_back(hosts_->type(swarm, host, fmt::format("peer-{}", peers.size()), line));
      EXPECT_TRUE(peers.back().wait_for_output("seated at stage"));
    }
    return peers;
  }
  // What has left that machine, whoever it was for: of a line of the table, the ninth number.
  static constexpr int kSentColumn = 8;
  double bytes_from(const SwarmFolder& swarm, int host) const {
    Program count =
        hosts_->start(swarm, host, fmt::format("count-{}", host), {"/bin/cat", "/proc/net/dev"});
    EXPECT_EQ(count.wait(), 0);
    const std::string table = count.output();  // after those that were counted before
    std::istringstream of_line(table.substr(table.rfind("eth0:") + 5));
    double bytes = 0;
    for (int column = 0; column <= kSentColumn; ++column) of_line >> bytes;
    return bytes;
  }
};

TEST_F(SwarmIslands, ALineCarriesEachSumOnce) {
  double said[2] = {}, counted[2] = {};
  for (const bool islands : {false, true}) {
    const SwarmFolder swarm(run_with(islands ? "host" : "none"));
    const double before = bytes_from(swarm, 1);
    Program coordinator = start_coordinator(swarm);
    std::vector<Program> peers = start_peers(swarm, printed_line(coordinator));
    EXPECT_EQ(coordinator.wait(2 * kPatienceSeconds), 0) << coordinator.output();
    for (Program& peer : peers) EXPECT_EQ(peer.wait(), 0) << peer.output();
    expect_reference(swarm);
    for (const JsonValue& step : swarm.log("step"))
      said[islands] += static_cast<double>(step["averaging_bytes"].count());
    counted[islands] = bytes_from(swarm, 1) - before;
  }
  // Of four members each sends a quarter of the vector to three others, and a quarter's sum: 6 in
  // all, of which 2 stay on its machine. Of two who speak each sends half, and a half's sum.
  EXPECT_LT(said[1], 0.4 * said[0]);
  EXPECT_LT(counted[1], 0.7 * counted[0]) << "with what is said besides";
}

TEST_F(SwarmIslands, WhoeverSpeaksIsKilledInMidRun) {
  std::vector<std::string> run = run_with("host");
  run.emplace_back("run.steps=40");
  const SwarmFolder swarm(run);
  Program coordinator = start_coordinator(swarm);
  std::vector<Program> peers =
      start_peers(swarm, printed_line(coordinator) + " --config " + swarm.emulating(4, 8).back());
  EXPECT_TRUE(comes_true([&] { return swarm.log("step").size() >= 4; }));
  peers.front().signal(SIGKILL);
  peers.front().wait();
  peers.erase(peers.begin());
  EXPECT_EQ(coordinator.wait(2 * kPatienceSeconds), 0) << coordinator.output();
  for (Program& peer : peers) EXPECT_EQ(peer.wait(), 0) << peer.output();
  expect_reference(swarm);
}

}  // namespace
}  // namespace swarmline
