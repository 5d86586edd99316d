// What a run is written on fails for a while, under real processes: the run waits, and ends as if
// nothing had happened.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sys/mount.h>
#include <thread>

#include <gtest/gtest.h>

#include "engine/store/files.h"
#include "engine/store/secret_file.h"
#include "tests/net/own_port.h"
#include "tests/store/etcd_process.h"
#include "tests/swarm/keyed_swarm.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

std::vector<std::string> run_of(std::uint32_t delay) {
  return {"run.steps=60", "pipeline.peers=2", "pipeline.delay=" + std::to_string(delay),
          "model.dtype=fp64", "model.bias=false"};
}

// A file system of its own, as small as that.
class SmallDisk {
 public:
  explicit SmallDisk(std::string path) : path_(std::move(path)) {
    std::filesystem::create_directories(path_);
    mounted_ = ::mount("tmpfs", path_.c_str(), "tmpfs", 0, "size=24m") == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  void fill() const {
    std::ofstream file(path_ + "/filler", std::ios::binary);
    const std::string page(4096, 'x');
    while (file.write(page.data(), static_cast<std::streamsize>(page.size())).flush()) continue;
  }
  void make_room() const { std::filesystem::remove(path_ + "/filler"); }

 private:
  std::string path_;
  bool mounted_ = false;
};

class SwarmOutage : public testing::TestWithParam<std::uint32_t> {
 protected:
  SwarmOutage() { adopt_orphans(); }
  ~SwarmOutage() override { expect_nothing_left(); }
};

void expect_nobody_lost(const SwarmFolder& swarm) {
  EXPECT_TRUE(swarm.log("peer_lost").empty()) << swarm.logs();
  EXPECT_TRUE(swarm.log("new_era").empty()) << swarm.logs();
  expect_reference(swarm);
}

TEST_P(SwarmOutage, AFullDiskHoldsTheRunUpUntilThereIsRoom) {
  const SwarmFolder swarm(run_of(GetParam()));
  const SmallDisk disk(swarm.temp().at("runs"));
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system needs root";
  Program launch = swarm.start("launch", swarm.emulating(10, 20));
  ASSERT_TRUE(swarm.wait_for_step(10)) << launch.output() << swarm.logs();
  disk.fill();
  // Some steps fit into what its files have already.
  const auto waits = swarm.wait_until([](const RunStatus& now) { return !now.journal.empty(); });
  ASSERT_TRUE(waits) << launch.output() << swarm.logs();
  EXPECT_NE(waits->journal.find("full"), std::string::npos) << waits->journal;
  std::this_thread::sleep_for(15s);
  const auto still = swarm.status();
  ASSERT_TRUE(still) << "it answers all the time";
  EXPECT_LE(still->step, waits->step + 2);
  EXPECT_TRUE(launch.running()) << launch.output();
  disk.make_room();
  ASSERT_EQ(launch.wait(), 0) << launch.output() << swarm.logs();
  EXPECT_NE(launch.output().find("the journal could not be written"), std::string::npos)
      << launch.output();
  expect_nobody_lost(swarm);
}

std::string endpoints_of(const EtcdCluster& etcd) {
  std::string list;
  for (std::size_t i = 0; i < EtcdCluster::kMembers; ++i)
    list += (i > 0 ? ",\"" : "\"") + etcd.endpoint(i) + "\"";
  return "run.etcd=[" + list + "]";
}

TEST_P(SwarmOutage, MembersOfEtcdAreKilledOneAfterTheOtherAndComeBack) {
  if (const std::string why = EtcdProcess::missing(); !why.empty()) GTEST_SKIP() << why;
  EtcdCluster etcd;
  ASSERT_FALSE(HasFailure());
  std::vector<std::string> config = run_of(GetParam());
  config.insert(config.end(), {endpoints_of(etcd), "run.etcd_lease_seconds=3",
                               "net.listen=\"" + free_address() + "\"", "run.steps=80"});
  const SwarmFolder swarm(config);
  Program coordinator = swarm.start("coordinator");
  ASSERT_TRUE(coordinator.wait_for_output("swarmline peer --join"));
  const auto address = swarm.run().read_address();
  ASSERT_TRUE(address);
  std::vector<std::unique_ptr<Program>> peers;
  for (const char* name : {"a", "b", "c", "d"})
    peers.push_back(std::make_unique<Program>(
        swarm.temp(), name,
        std::vector<std::string>{"peer", "--data-root", "/", "--join", to_string(*address),
                                 "--name", name, "--emulate-forward-ms", "40",
                                 "--emulate-backward-ms", "80"}));
  for (std::size_t i = 0; i < EtcdCluster::kMembers; ++i) {
    const auto now = swarm.wait_until([](const RunStatus& s) { return s.step >= 5; });
    ASSERT_TRUE(now) << coordinator.output();
    etcd.kill(i);
    std::this_thread::sleep_for(3s);
    etcd.start(i);
    ASSERT_TRUE(swarm.wait_for_step(std::min<std::uint64_t>(now->step + 3, 75)))
        << coordinator.output();
  }
  // All of them, for longer than the lease: nobody leads, until the same coordinator does again.
  for (std::size_t i = 0; i < EtcdCluster::kMembers; ++i) etcd.kill(i);
  std::this_thread::sleep_for(6s);
  EXPECT_TRUE(coordinator.running()) << coordinator.output();
  for (std::size_t i = 0; i < EtcdCluster::kMembers; ++i) etcd.start(i);
  ASSERT_EQ(coordinator.wait(), 0) << coordinator.output();
  for (auto& peer : peers) EXPECT_EQ(peer->wait(), 0) << peer->output();
  expect_nobody_lost(swarm);
}

INSTANTIATE_TEST_SUITE_P(Delay, SwarmOutage, testing::Values(0U, 1U));

// On a machine of its own, with a copy of keys/ from before: it leads once it has that of now.
TEST(SwarmRotation, AStandbyLeadsWithTheNewKeyOnly) {
  if (const std::string why = EtcdProcess::missing(); !why.empty()) GTEST_SKIP() << why;
  const EtcdProcess etcd;
  const std::string standby_address = free_address();
  const SwarmFolder swarm(
      keyed({"run.steps=1000000", "run.etcd=[\"" + etcd.endpoint() + "\"]",
             "run.etcd_lease_seconds=2", "net.standby=[\"" + standby_address + "\"]"}));
  Program coordinator = swarm.start("coordinator");
  const std::string join = printed_join(coordinator);
  const RunFolder elsewhere(swarm.temp().at("elsewhere/small"));
  std::filesystem::create_directories(elsewhere.path());
  std::filesystem::copy(swarm.run().keys(), elsewhere.keys());
  Program one(swarm.temp(), "one", {"peer", "--data-root", "/", "--join", join, "--name", "one"});
  Program two(swarm.temp(), "two", {"peer", "--data-root", "/", "--join", join, "--name", "two"});
  Program standby(swarm.temp(), "standby",
                  swarm.arguments("coordinator",
                                  {"--standby", "--set", "net.listen=\"" + standby_address + "\"",
                                   "--set", "run.dir=\"" + swarm.temp().at("elsewhere") + "\""}));
  ASSERT_TRUE(swarm.wait_for_step(2)) << one.output() << two.output();
  const Ended rotated = run_program(swarm.temp(), "rotate", {"keys", "rotate", swarm.run().path()});
  EXPECT_NE(rotated.output.find("need a copy"), std::string::npos) << rotated.output;
  coordinator.signal(SIGKILL);
  coordinator.wait();
  EXPECT_TRUE(standby.wait_for_output("this standby waits for it"));
  ASSERT_TRUE(
      replace_secret_file(elsewhere.run_key(), *read_text_file(swarm.run().run_key(), 10'000)));
  EXPECT_TRUE(standby.wait_for_output("swarmline peer --join"));
  const Ended stopped = run_program(swarm.temp(), "stop", {"stop", elsewhere.path()});
  EXPECT_EQ(stopped.code, 0) << stopped.output << standby.output();
  EXPECT_EQ(standby.wait(), 0) << standby.output();
  for (Program* peer : {&one, &two}) {
    EXPECT_EQ(peer->wait(), 0) << peer->output();
    EXPECT_EQ(peer->output().find("seated at stage"), peer->output().rfind("seated at stage"))
        << "it kept its seat";
  }
}

}  // namespace
}  // namespace swarmline
