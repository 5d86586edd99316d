// Real processes: two peers of a stage are killed, a live peer of another stage moves there by
// itself.
#include <algorithm>
#include <csignal>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

constexpr std::size_t kStages = 4;
constexpr std::size_t kPeers = 3;
constexpr std::size_t kHurt = 2;  // the stage that loses two

std::size_t ready(const RunStatus& status, std::size_t stage) {
  return static_cast<std::size_t>(
      std::ranges::count(status.stages.at(stage).peers, "ready", &PeerStatus::state));
}

double seconds_of(const JsonValue& line) {
  return line["wall_seconds"].number_or(0);
}

// Steps a second before the loss, and from when on they were what the survivors can do at best: two
// of three at the slowest stage. For people: a loaded machine proves nothing.
void show_recovery(const std::vector<JsonValue>& steps, const std::vector<JsonValue>& losses) {
  if (losses.empty() || steps.size() < 20) return;
  const double lost = seconds_of(losses.front());
  std::vector<double> before;
  for (std::size_t i = 5; i < steps.size() && seconds_of(steps[i]) < lost; ++i)
    before.push_back(seconds_of(steps[i]) - seconds_of(steps[i - 1]));
  if (before.empty()) return;
  std::ranges::sort(before);
  const double best = before[before.size() / 2] * kPeers / (kPeers - 1);
  constexpr std::size_t kWindow = 8;  // steps
  double recovered = -1;
  for (std::size_t i = steps.size(); i-- > kWindow;) {
    const double mean = (seconds_of(steps[i]) - seconds_of(steps[i - kWindow])) / kWindow;
    if (mean > best / 0.95) break;
    recovered = seconds_of(steps[i - kWindow]) - lost;
  }
  const double last = (seconds_of(steps.back()) - seconds_of(steps[steps.size() - 11])) / 10;
  fmt::print(
      "step before {:.3f} s, survivors' best {:.3f} s, last ten {:.3f} s; 95 % of the best "
      "from {:.1f} s after the loss\n",
      before[before.size() / 2], best, last, recovered);
}

TEST(SwarmBalance, APeerMovesToTheStageThatLostTwo) {
  const SwarmFolder swarm({"run.steps=40", "pipeline.delay=1", "model.dtype=fp64",
                           "model.bias=false", "pipeline.stages=4", "pipeline.peers=[3, 3, 3, 3]",
                           "batch.batch=48", "log.level=info"});
  Program launch = swarm.start("launch", SwarmFolder::without_restarts(swarm.emulating(20, 40)));
  const auto before = swarm.wait_for_step(10);
  ASSERT_TRUE(before) << launch.output() << swarm.logs();
  for (const std::size_t i : {0U, 1U})
    ::kill(process_with(launch.pid(), "--name " + before->stages.at(kHurt).peers.at(i).name),
           SIGKILL);
  const auto moved =
      swarm.wait_until([&](const RunStatus&) { return !swarm.log("peer_seated").empty(); });
  ASSERT_TRUE(moved) << launch.output() << swarm.logs();
  EXPECT_EQ(swarm.log("peer_lost").size(), 2U);
  EXPECT_EQ(swarm.log("move").size(), 1U);
  const auto there =
      swarm.wait_until([](const RunStatus& status) { return ready(status, kHurt) == kPeers - 1; });
  ASSERT_TRUE(there) << launch.output() << swarm.logs();
  for (std::size_t stage = 0; stage < kStages; ++stage) EXPECT_GE(ready(*there, stage), kPeers - 1);
  EXPECT_EQ(launch.wait(), 0) << launch.output() << swarm.logs();
  show_recovery(swarm.log("step"), swarm.log("peer_lost"));
  expect_reference(swarm);
}

}  // namespace
}  // namespace swarmline
