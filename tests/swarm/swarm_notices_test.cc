// Peers that are told that their machine will be taken away, by metadata servers as the three
// clouds have them and by a command: each hands in its work and leaves in time, and the run ends
// with its reference's parameters.
#include <algorithm>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

constexpr double kNoticeSeconds = 20;  // of fake_metadata_server.py

class MetadataServer {
 public:
  MetadataServer(const SwarmFolder& swarm, const std::string& cloud)
      : folder_(swarm.temp().at("metadata")),
        program_(start(swarm, cloud, folder_)),
        port_(read_port(program_)) {}

  std::string url() const { return "http://127.0.0.1:" + port_; }
  void give_notice() const { std::ofstream(folder_ + "/notice") << "\n"; }
  void be_broken(bool broken) const {
    if (broken)
      std::ofstream(folder_ + "/broken") << "\n";
    else
      std::filesystem::remove(folder_ + "/broken");
  }
  bool was_acknowledged() const { return std::filesystem::exists(folder_ + "/acknowledged"); }

 private:
  static Program start(const SwarmFolder& swarm, const std::string& cloud,
                       const std::string& folder) {
    std::filesystem::create_directories(folder);
    const std::string script =
        std::string(SWARMLINE_SOURCE_DIR) + "/tests/swarm/fake_metadata_server.py";
    return {swarm.temp(), "metadata", "/usr/bin/env", {"python3", script, cloud, folder}};
  }
  static std::string read_port(Program& program) {
    if (!program.wait_for_output("port ")) return "1";
    const std::string output = program.output();
    const std::size_t at = output.find("port ") + 5;
    return output.substr(at, output.find('\n', at) - at);
  }

  std::string folder_;
  Program program_;
  std::string port_;
};

// Two stages of two peers, of which one is told. `give`: its notice comes. `milliseconds`: of a
// microbatch, forward and backward.
void expect_it_leaves_in_time(const SwarmFolder& swarm, std::vector<std::string> flags,
                              const std::function<void()>& give, int milliseconds = 10) {
  Program coordinator = swarm.start("coordinator");
  ASSERT_TRUE(coordinator.wait_for_output("swarmline peer --join"));
  const auto address = swarm.run().read_address();
  ASSERT_TRUE(address);
  std::vector<Program> others;
  const auto join = [&](const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"peer",
                                          "--data-root",
                                          "/",
                                          "--join",
                                          to_string(*address),
                                          "--name",
                                          name,
                                          "--emulate-forward-ms",
                                          std::to_string(milliseconds),
                                          "--emulate-backward-ms",
                                          std::to_string(milliseconds)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Program(swarm.temp(), name, std::move(arguments));
  };
  for (const char* name : {"a", "b", "c"}) others.push_back(join(name, {"--notices", "none"}));
  Program spot = join("spot", std::move(flags));
  ASSERT_TRUE(swarm.wait_for_step(1)) << swarm.logs() << spot.output();
  give();
  EXPECT_EQ(spot.wait(kNoticeSeconds), 0) << spot.output();
  EXPECT_NE(spot.output().find("this peer hands in its work and leaves"), std::string::npos)
      << spot.output();
  EXPECT_EQ(run_program(swarm.temp(), "stop", {"stop", swarm.run().path()}).code, 0);
  EXPECT_EQ(coordinator.wait(), 0) << coordinator.output();
  for (Program& other : others) EXPECT_EQ(other.wait(), 0) << other.output();
  EXPECT_NE(coordinator.output().find("peer_draining"), std::string::npos) << coordinator.output();
  expect_reference_as_far_as_it_got(swarm);
}

std::vector<std::string> settings() {
  return {"run.steps=1000000", "optimizer.lr_decay_steps=40", "pipeline.stages=2",
          "pipeline.peers=2", "model.dtype=\"fp64\""};
}

class SwarmNotices : public testing::TestWithParam<const char*> {};

// The server answers garbage first, and is out for a while.
TEST_P(SwarmNotices, OfACloudEndAPeerInTime) {
  const SwarmFolder swarm(settings());
  const MetadataServer server(swarm, GetParam());
  expect_it_leaves_in_time(swarm, {"--notices", GetParam(), "--notice-url", server.url()}, [&] {
    server.be_broken(true);
    ASSERT_TRUE(swarm.wait_for_step(4));
    server.be_broken(false);
    server.give_notice();
  });
  EXPECT_EQ(server.was_acknowledged(), std::string_view(GetParam()) == "azure");
}

INSTANTIATE_TEST_SUITE_P(Clouds, SwarmNotices, testing::Values("aws", "gcp", "azure"),
                         [](const auto& cloud) { return std::string(cloud.param); });

TEST(SwarmNoticeCommand, EndsAPeerInTime) {
  const SwarmFolder swarm(settings());
  const std::string taken = swarm.temp().at("taken");
  const std::string command =
      "while [ ! -e " + taken + " ]; do sleep 0.1; done; echo the machine goes in 20 seconds";
  expect_it_leaves_in_time(swarm, {"--notices", "command", "--notice-command", command},
                           [&] { std::ofstream(taken) << "\n"; });
}

// Its step takes eight seconds, and it has five: what it has computed goes to a mate.
TEST(SwarmHandOver, APeerThatGoesBeforeItsStepEndsLosesNothing) {
  std::vector<std::string> with = settings();
  with.insert(with.end(), {"batch.batch=64", "batch.microbatch=1", "balance.moves=false"});
  const SwarmFolder swarm(with);
  const std::string taken = swarm.temp().at("taken");
  const std::string command = "while [ ! -e " + taken + " ]; do sleep 0.1; done; echo 7";
  expect_it_leaves_in_time(
      swarm, {"--notices", "command", "--notice-command", command},
      [&] {
        std::this_thread::sleep_for(std::chrono::seconds(1));  // of the second step
        std::ofstream(taken) << "\n";
      },
      125);
  EXPECT_GE(swarm.log("peer_handed_over").size(), 1U) << swarm.logs();
  EXPECT_EQ(swarm.log("peer_lost").size(), 0U) << swarm.logs();
}

TEST(SwarmNoticeMistakes, AreSaidInASentence) {
  const SwarmFolder swarm({});
  const auto join = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"peer", "--join", "127.0.0.1:1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(swarm.temp(), "mistake", std::move(arguments));
  };
  const Ended command = join({"--notices", "command"});
  EXPECT_EQ(command.code, 2);
  EXPECT_NE(command.output.find("notice_command is empty"), std::string::npos) << command.output;
  const Ended url = join({"--notices", "aws", "--notice-url", "https://x/y"});
  EXPECT_EQ(url.code, 2);
  EXPECT_NE(url.output.find("expected http://HOST"), std::string::npos) << url.output;
  const Ended source = join({"--notices", "ibm"});
  EXPECT_EQ(source.code, 2);
  EXPECT_NE(source.output.find("azure"), std::string::npos) << source.output;
}

}  // namespace
}  // namespace swarmline
