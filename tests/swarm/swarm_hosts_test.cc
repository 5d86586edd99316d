// Machines of their own: network namespaces, joined by pairs of virtual Ethernet interfaces. What
// is done on each of them, its user could do: the line that the coordinator prints is typed there.
// Needs root and ip (iproute2); skips, with the reason, elsewhere.
#include <csignal>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/store/journal.h"
#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

constexpr const char* kIp = "/usr/sbin/ip";

bool run_ip(const std::string& arguments) {
  return std::system(fmt::format("{} {} >/dev/null 2>&1", kIp, arguments).c_str()) == 0;
}

// So many hosts in one network, 10.77.0.1 and on: a bridge on the first, to which the others' only
// interfaces lead.
class Hosts {
 public:
  explicit Hosts(int count) {
    for (int i = 0; i < count; ++i) {
      names_.push_back(fmt::format("swarmline-{}-{}", ::getpid(), i));
      made_ = made_ && run_ip("netns add " + names_.back()) && on(i, "link set lo up");
    }
    made_ = made_ && on(0, "link add br0 type bridge") && on(0, "link set br0 up") &&
            on(0, "addr add 10.77.0.1/24 dev br0");
    for (int i = 1; made_ && i < count; ++i)
      made_ = on(0, fmt::format("link add port{0} type veth peer name eth0 netns {1}", i,
                                names_[static_cast<std::size_t>(i)])) &&
              on(0, fmt::format("link set port{} master br0 up", i)) &&
              on(i, fmt::format("addr add {}/24 dev eth0", address(i))) &&
              on(i, "link set eth0 up");
  }
  ~Hosts() {
    for (const std::string& name : names_) run_ip("netns del " + name);
  }
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  bool made() const { return made_; }
  static std::string address(int host) { return fmt::format("10.77.0.{}", host + 1); }

  Program start(const SwarmFolder& swarm, int host, const std::string& name,
                std::vector<std::string> command) const {
    command.insert(command.begin(), {"netns", "exec", names_[static_cast<std::size_t>(host)]});
    return Program(swarm.temp(), name, kIp, std::move(command));
  }
  // As a user types it, where the data lies.
  Program type(const SwarmFolder& swarm, int host, const std::string& name,
               const std::string& line) const {
    const std::string there =
        "cd " + swarm.temp().at(".") + "; PATH=" SWARMLINE_BINARY_DIR ":$PATH; ";
    return start(swarm, host, name, {"/bin/sh", "-c", there + "exec " + line});
  }

 private:
  bool on(int host, const std::string& arguments) const {
    return run_ip(fmt::format("-n {} {}", names_[static_cast<std::size_t>(host)], arguments));
  }
  std::vector<std::string> names_;
  bool made_ = true;
};

class SwarmHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root makes network namespaces";
    if (::access(kIp, X_OK) != 0) GTEST_SKIP() << "there is no " << kIp;
    hosts_.emplace(3);
    if (!hosts_->made()) GTEST_SKIP() << "network namespaces can't be made here";
  }
  Program start_coordinator(const SwarmFolder& swarm) const {
    std::vector<std::string> command = swarm.arguments("coordinator");
    command.insert(command.begin(), SWARMLINE_BINARY_DIR "/swarmline");
    return hosts_->start(swarm, 0, "coordinator", std::move(command));
  }
  // The whole line.
  static std::string printed_line(Program& coordinator) {
    if (!coordinator.wait_for_output("swarmline peer --join '")) return "false";
    const std::string output = coordinator.output();
    const std::size_t begin = output.find("swarmline peer --join '");
    return output.substr(begin, output.find('\n', begin) - begin);
  }
  std::optional<Hosts> hosts_;
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
