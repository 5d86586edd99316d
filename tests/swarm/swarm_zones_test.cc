// Real processes in two zones: each stage is seated over both, and one zone's loss takes nothing.
#include <csignal>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kSteps = 20;

std::set<std::string> zones_of(const StageStatus& stage) {
  std::set<std::string> zones;
  for (const PeerStatus& peer : stage.peers) zones.insert(peer.zone);
  return zones;
}

// They come zone by zone, so that by numbers alone each stage would be one zone's.
TEST(SwarmZones, TheLossOfOneTakesNothing) {
  const SwarmFolder swarm({"run.steps=20", "model.dtype=\"fp64\"", "model.bias=false",
                           "pipeline.stages=2", "pipeline.peers=2", "log.level=info"});
  Program coordinator = swarm.start("coordinator");
  ASSERT_TRUE(coordinator.wait_for_output("swarmline peer --join"));
  const auto address = swarm.run().read_address();
  ASSERT_TRUE(address);
  std::vector<Program> east, west;
  for (const bool is_east : {true, false, true, false}) {
    std::vector<Program>& zone = is_east ? east : west;
    const std::string name = (is_east ? "east-" : "west-") + std::to_string(zone.size());
    zone.emplace_back(
        swarm.temp(), name,
        std::vector<std::string>{"peer", "--data-root", "/", "--join", to_string(*address),
                                 "--name", name, "--zone", is_east ? "east" : "west",
                                 "--emulate-forward-ms", "10", "--emulate-backward-ms", "10"});
    ASSERT_TRUE(zone.back().wait_for_output("seated at stage")) << zone.back().output();
  }
  const auto before = swarm.wait_for_step(2);
  ASSERT_TRUE(before) << swarm.logs();
  ASSERT_LT(before->step, kSteps / 2) << "too late to see anything";
  for (const StageStatus& stage : before->stages)
    EXPECT_EQ(zones_of(stage), (std::set<std::string>{"east", "west"})) << "stage " << stage.stage;

  for (Program& peer : east) peer.signal(SIGKILL);
  EXPECT_EQ(coordinator.wait(), 0) << coordinator.output() << swarm.logs();
  for (Program& peer : west) EXPECT_EQ(peer.wait(), 0) << peer.output();
  EXPECT_EQ(swarm.log("peer_lost").size(), 2U) << swarm.logs();
  EXPECT_TRUE(swarm.log("new_era").empty()) << swarm.logs();
  const std::vector<JsonValue> steps = swarm.log("step");
  ASSERT_EQ(steps.size(), kSteps) << "each is made once";
  for (std::uint64_t step = 0; step < kSteps; ++step)
    EXPECT_EQ(steps[step]["step"].count(), step + 1);
  expect_reference(swarm);
}

}  // namespace
}  // namespace swarmline
