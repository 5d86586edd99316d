// Machines that may be taken soon.
#include <algorithm>

#include <gtest/gtest.h>

#include "balancer/plan.h"

namespace swarmline {
namespace {

PlanSnapshot swarm(std::vector<PlanStage> stages, const std::vector<int>& seats) {
  PlanSnapshot snapshot{.stages = std::move(stages), .peers = {}};
  for (const int seat : seats) {
    const auto number = static_cast<std::uint32_t>(snapshot.peers.size() + 1);
    snapshot.peers.push_back({.peer = PeerId(number),
                              .stage = StageId(static_cast<std::uint16_t>(seat)),
                              .shadows = {}});
  }
  return snapshot;
}
std::vector<PlanStage> equal_stages(std::size_t count) {
  return std::vector<PlanStage>(count, {.cost = 1, .state_bytes = 2'412'000'000});
}

TEST(PlanAtRisk, AStageThatOnlySuchPeersServeGetsAShadowEvenWhereNoneWasAskedFor) {
  PlanSnapshot snapshot = swarm(equal_stages(2), {0, 0, 1, 1});
  snapshot.peers[0].at_risk = true;
  EXPECT_TRUE(plan_swarm(snapshot, {.shadows_per_stage = 0}).shadows.empty());
  snapshot.peers[1].at_risk = true;
  const SwarmPlan plan = plan_swarm(snapshot, {.shadows_per_stage = 0});
  ASSERT_EQ(plan.shadows.size(), 1U);
  EXPECT_TRUE(plan.shadows[0].add);
  EXPECT_EQ(plan.shadows[0].stage, StageId(0));
  EXPECT_GE(plan.shadows[0].peer.value, 3U) << "not one of its own";
}

TEST(PlanAtRisk, NoneOfThemHostsAShadow) {
  PlanSnapshot snapshot = swarm(equal_stages(3), {0, 1, 1, 2, 2});
  snapshot.peers[0].at_risk = snapshot.peers[1].at_risk = snapshot.peers[2].at_risk = true;
  snapshot.peers[3].at_risk = true;
  const SwarmPlan plan = plan_swarm(snapshot, {.shadows_per_stage = 0});
  ASSERT_FALSE(plan.shadows.empty());
  for (const ShadowChange& change : plan.shadows) EXPECT_EQ(change.peer.value, 5U);
}

TEST(PlanAtRisk, UnderAutoItsCostDoesNotCount) {
  // Every peer serves a slowest stage: no shadow comes for nothing.
  PlanSnapshot snapshot = swarm(equal_stages(2), {0, 0, 1, 1});
  EXPECT_TRUE(plan_swarm(snapshot, {}).shadows.empty());
  snapshot.peers[2].at_risk = snapshot.peers[3].at_risk = true;
  const SwarmPlan plan = plan_swarm(snapshot, {});
  ASSERT_FALSE(plan.shadows.empty());
  EXPECT_EQ(plan.shadows[0].stage, StageId(1));
  // It stays while they are at risk.
  for (const ShadowChange& change : plan.shadows)
    snapshot.peers[change.peer.value - 1].shadows.push_back({change.stage, true});
  EXPECT_TRUE(std::ranges::none_of(plan_swarm(snapshot, {}).shadows,
                                   [](const ShadowChange& change) { return !change.add; }));
}

}  // namespace
}  // namespace swarmline
