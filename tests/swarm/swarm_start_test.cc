// Peers that can't serve a run, or not each stage of it, as real processes: each ends with a
// sentence or serves what it can, and the run goes on without asking anybody.
#include <csignal>
#include <functional>

#include <gtest/gtest.h>

#include "engine/store/files.h"
#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class SwarmStart : public testing::Test {
 protected:
  Program coordinate(const SwarmFolder& swarm) {
    Program coordinator = swarm.start("coordinator");
    if (!coordinator.wait_for_output("swarmline peer --join")) return coordinator;
    address_ = to_string(*swarm.run().read_address());
    return coordinator;
  }
  Program peer(const SwarmFolder& swarm, const std::string& name, std::vector<std::string> more) {
    more.insert(more.begin(), {"peer", "--join", address_, "--name", name});
    return Program(swarm.temp(), name, std::move(more));
  }
  Program good_peer(const SwarmFolder& swarm, const std::string& name) {
    return peer(swarm, name, {"--data-root", "/"});
  }
  // A folder with the run's data, or nearly.
  static std::string data_in(const SwarmFolder& swarm, const std::string& folder,
                             const std::function<void(std::string&)>& change) {
    auto text = read_text_file(swarm.temp().at("text"), 1 << 20);
    EXPECT_TRUE(text);
    change(*text);
    EXPECT_TRUE(make_folders(swarm.temp().at(folder)));
    swarm.temp().write(folder + "/text", *text);
    return swarm.temp().at(folder);
  }
  // Somebody was refused: it says why, so does the coordinator, and the run waits.
  static void expect_refused(const SwarmFolder& swarm, Program& peer, const std::string& why) {
    EXPECT_EQ(peer.wait(), 3) << peer.output();
    EXPECT_TRUE(has(peer.output(), why)) << peer.output();
    const auto status = swarm.wait_until(
        [&](const RunStatus& now) { return has(now.refused, why) && now.state == "waiting"; });
    if (status) EXPECT_TRUE(has(status->refused, "127.0.0.1:")) << status->refused;
  }

  std::string address_ = "127.0.0.1:1";
};

TEST_F(SwarmStart, WhoCannotServeIsRefusedAndTheRunTrainsWithTheOthers) {
  const SwarmFolder swarm({"model.dtype=fp64", "pipeline.peers=1"});
  Program coordinator = coordinate(swarm);
  Program device = peer(swarm, "no-device", {"--data-root", "/", "--device", "cuda"});
  expect_refused(swarm, device, "no CUDA");
  Program memory = peer(swarm, "no-memory", {"--data-root", "/", "--memory", "100K"});
  expect_refused(swarm, memory, "every stage needs");
  Program content = peer(swarm, "other-content",
                         {"--data", data_in(swarm, "other", [](std::string& t) { t[9] ^= 1; })});
  expect_refused(swarm, content, "text has another content");
  Program size = peer(swarm, "other-size",
                      {"--data", data_in(swarm, "longer", [](std::string& t) { t += "x"; })});
  expect_refused(swarm, size, "text has another size");
  Program a = peer(swarm, "a", {"--data", data_in(swarm, "same", [](std::string&) {})});
  Program b = good_peer(swarm, "b");
  EXPECT_EQ(coordinator.wait(), 0) << coordinator.output();
  EXPECT_EQ(a.wait(), 0) << a.output();
  EXPECT_EQ(b.wait(), 0) << b.output();
  EXPECT_EQ(swarm.log("peer_refused").size(), 3U) << coordinator.output();
  EXPECT_EQ(swarm.log("peer_failed").size(), 1U) << coordinator.output();
  expect_reference(swarm);
}

TEST_F(SwarmStart, WhoLacksTheDataServesAStageThatReadsNone) {
  const SwarmFolder swarm({"model.dtype=fp64"});
  ASSERT_TRUE(make_folders(swarm.temp().at("empty")));
  Program coordinator = coordinate(swarm);
  Program without = peer(swarm, "without", {"--data", swarm.temp().at("empty")});
  ASSERT_TRUE(without.wait_for_output("seated at stage 1"));
  EXPECT_TRUE(has(without.output(), "this machine lacks the run's data")) << without.output();
  Program with = good_peer(swarm, "with");
  EXPECT_EQ(coordinator.wait(), 0) << coordinator.output();
  EXPECT_EQ(with.wait(), 0) << with.output();
  EXPECT_EQ(without.wait(), 0) << without.output();
  expect_reference(swarm);
}

// The same after the start as before it.
TEST_F(SwarmStart, WhereEachStageReadsTheDataWhoLacksItIsRefused) {
  const SwarmFolder swarm({"pipeline.stages=1", "run.steps=1000000"});
  ASSERT_TRUE(make_folders(swarm.temp().at("empty")));
  Program coordinator = coordinate(swarm);
  Program early = peer(swarm, "early", {"--data", swarm.temp().at("empty")});
  expect_refused(swarm, early, "it lacks the run's data");
  Program with = good_peer(swarm, "with");
  ASSERT_TRUE(swarm.wait_for_step(1)) << with.output();
  Program late = peer(swarm, "late", {"--data", swarm.temp().at("empty")});
  EXPECT_EQ(late.wait(), 3) << late.output();
  Program device = peer(swarm, "no-device", {"--data-root", "/", "--device", "cuda"});
  EXPECT_EQ(device.wait(), 3) << device.output();
  const auto before = swarm.status();
  ASSERT_TRUE(before && swarm.wait_for_step(before->step + 1));
  EXPECT_EQ(run_program(swarm.temp(), "stop", {"stop", "--now", swarm.run().path()}).code, 0);
  coordinator.wait();
}

TEST_F(SwarmStart, OneThatIsInterruptedOrLeavesBeforeTheStartEndsAtOnce) {
  const SwarmFolder swarm({});
  Program coordinator = coordinate(swarm);
  for (const int signal : {SIGINT, SIGTERM}) {
    Program first = good_peer(swarm, "first-" + std::to_string(signal));
    ASSERT_TRUE(first.wait_for_output("seated at stage 0"));
    first.signal(signal);
    EXPECT_EQ(first.wait(10), signal == SIGINT ? 130 : 0) << first.output();
  }
  Program a = good_peer(swarm, "a"), b = good_peer(swarm, "b");
  EXPECT_EQ(coordinator.wait(), 0) << coordinator.output();
  EXPECT_EQ(a.wait(), 0) << a.output();
  EXPECT_EQ(b.wait(), 0) << b.output();
}

TEST_F(SwarmStart, LaunchSaysInOneSentenceThatItsPeersLackTheirDevice) {
  const SwarmFolder swarm({});
  const Ended ended = swarm.launch(
      {"--peer-config",
       swarm.temp().write("peer.toml", "config_version = 1\n[peer]\ndevice = \"cuda\"\n")});
  EXPECT_EQ(ended.code, 3) << ended.output;
  EXPECT_TRUE(has(ended.output, "swarmline: peer-a: device = \"cuda\"") ||
              has(ended.output, "swarmline: peer-b: device = \"cuda\""))
      << ended.output;
  EXPECT_FALSE(has(ended.output, "started again")) << ended.output;
}

}  // namespace
}  // namespace swarmline
