// Machines of their own for tests: network namespaces, joined by pairs of virtual Ethernet
// interfaces. What is done on each of them, its user could do.
//   Needs root and ip and tc (iproute2): made() is false elsewhere. Thread: one.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/swarm/swarm_process.h"

namespace swarmline {

inline constexpr const char* kIp = "/usr/sbin/ip";

inline constexpr const char* kTc = "/usr/sbin/tc";

inline bool run_ip(const std::string& arguments) {
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
  // As a firewall before it: segments that open a connection to it vanish; what it opens itself,
  // and all that follows, passes.
  bool close_ports_of(int host) const {
    const auto tc = [&](const std::string& arguments) {
      return run_ip(fmt::format("netns exec {} {} {}", names_[0], kTc, arguments));
    };
    const std::string port = fmt::format("dev port{}", host);
    return tc("qdisc add " + port + " root handle 1: htb default 1") &&
           tc("class add " + port + " parent 1: classid 1:1 htb rate 10gbit") &&
           tc("class add " + port + " parent 1: classid 1:2 htb rate 10gbit") &&
           tc("qdisc add " + port + " parent 1:2 blackhole") &&
           tc("filter add " + port +
              " parent 1: protocol ip u32 match ip protocol 6 0xff match u8 0x02 0x12 at 33 "
              "flowid 1:2");
  }
  static std::string address(int host) { return fmt::format("10.77.0.{}", host + 1); }
  // The other addresses: fd77::1 and on.
  bool speak_ipv6() const {
    for (int i = 0; i < static_cast<int>(names_.size()); ++i)
      if (!on(i, fmt::format("addr add fd77::{}/64 dev {} nodad", i + 1, i == 0 ? "br0" : "eth0")))
        return false;
    return true;
  }
  // Its cable is pulled out, or put in again. Not the first one's.
  bool plug(int host, bool in) const {
    return on(host, fmt::format("link set eth0 {}", in ? "up" : "down"));
  }

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

// Tests on so many hosts; skipped where there can be none.
class HostsTest : public ::testing::Test {
 protected:
  explicit HostsTest(int count) : count_(count) {}
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root makes network namespaces";
    if (::access(kIp, X_OK) != 0) GTEST_SKIP() << "there is no " << kIp;
    hosts_.emplace(count_);
    if (!hosts_->made()) GTEST_SKIP() << "network namespaces can't be made here";
  }
  Program start_coordinator(const SwarmFolder& swarm) const {
    std::vector<std::string> command = swarm.arguments("coordinator");
    command.insert(command.begin(), SWARMLINE_BINARY_DIR "/swarmline");
    return hosts_->start(swarm, 0, "coordinator", std::move(command));
  }
  // The whole line by which others join.
  static std::string printed_line(Program& listening) {
    if (!listening.wait_for_output(" --join '")) return "false";
    const std::string output = listening.output();
    const std::size_t begin = output.rfind("swarmline ", output.find(" --join '"));
    return output.substr(begin, output.find('\n', begin) - begin);
  }

  std::optional<Hosts> hosts_;

 private:
  const int count_;
};

}  // namespace swarmline
