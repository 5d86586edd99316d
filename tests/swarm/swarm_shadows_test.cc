// Real processes: every peer of a stage is killed at once, and a shadow takes the stage over.
#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

bool all_shadowed(const RunStatus& status) {
  return std::ranges::all_of(status.stages, [](const StageStatus& stage) {
    return std::ranges::count(stage.shadows, "ready", &ShadowStatus::state) > 0;
  });
}

void kill_stage(const Program& launch, const RunStatus& status, std::size_t stage) {
  for (const PeerStatus& peer : status.stages.at(stage).peers)
    if (peer.state == "ready") ::kill(process_with(launch.pid(), "--name " + peer.name), SIGKILL);
}

double wall_seconds_of(const JsonValue& line) {
  return line["wall_seconds"].number_or(0);
}

// Every step is in the log once, in order: none was taken back.
void expect_all_steps_once(const SwarmFolder& swarm, std::uint64_t steps) {
  const std::vector<JsonValue> lines = swarm.log("step");
  ASSERT_EQ(lines.size(), steps);
  for (std::uint64_t step = 0; step < steps; ++step)
    EXPECT_EQ(lines[step]["step"].count(), step + 1);
}

class SwarmShadows : public testing::TestWithParam<int> {};

TEST_P(SwarmShadows, AStageThatLosesAllItsPeersIsTakenOver) {
  constexpr std::uint64_t kSteps = 24;
  const SwarmFolder swarm({fmt::format("run.steps={}", kSteps), "model.dtype=fp64",
                           "model.bias=false", fmt::format("pipeline.delay={}", GetParam()),
                           "pipeline.stages=3", "pipeline.peers=[2, 2, 2]", "balance.shadows=1",
                           "batch.batch=32", "log.level=info"});
  Program launch = swarm.start("launch", swarm.emulating(10, 20));
  const auto before = swarm.wait_until(all_shadowed);
  ASSERT_TRUE(before) << launch.output() << swarm.logs();
  ASSERT_LT(before->step, kSteps / 2) << "too late to see anything";
  kill_stage(launch, *before, 1);
  const auto after =
      swarm.wait_until([&](const RunStatus&) { return !swarm.log("taken_over").empty(); });
  ASSERT_TRUE(after) << launch.output() << swarm.logs();
  EXPECT_EQ(launch.wait(), 0) << launch.output() << swarm.logs();
  const auto lost = swarm.log("peer_lost"), taken = swarm.log("taken_over");
  ASSERT_EQ(lost.size(), 2U) << swarm.logs();
  ASSERT_EQ(taken.size(), 1U);
  fmt::print("served again {:.0f} ms after the last peer was lost\n",
             1e3 * (wall_seconds_of(taken[0]) - wall_seconds_of(lost[1])));
  expect_all_steps_once(swarm, kSteps);
  expect_reference(swarm);
}

INSTANTIATE_TEST_SUITE_P(Delay, SwarmShadows, testing::Values(0, 1));

}  // namespace
}  // namespace swarmline
