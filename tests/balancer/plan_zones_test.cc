// Stages spread over zones and hosts: by newcomers, shadows and moves.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "balancer/plan.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kState = 2'412'000'000;  // 96.48 s at 200 Mb/s

struct At {
  int stage = 0;  // below 0: none
  std::string zone;
  double speed = 1;
};

PlanSnapshot swarm(std::size_t stages, const std::vector<At>& peers) {
  PlanSnapshot snapshot{
      .stages = std::vector<PlanStage>(stages, {.cost = 1, .state_bytes = kState}), .peers = {}};
  for (const At& at : peers) {
    const auto number = static_cast<std::uint32_t>(snapshot.peers.size() + 1);
    PlanPeer peer{.peer = PeerId(number), .speed = at.speed, .shadows = {}};
    if (at.stage >= 0) peer.stage = StageId(static_cast<std::uint16_t>(at.stage));
    peer.at = {.zone = at.zone, .host = std::to_string(number)};
    snapshot.peers.push_back(peer);
  }
  return snapshot;
}
PlanSnapshot without_zones(PlanSnapshot snapshot) {
  for (PlanPeer& peer : snapshot.peers) peer.at = {};
  return snapshot;
}

// ---- Newcomers ----------------------------------------------------------------------------------

TEST(PlanZones, ANewcomerMakesASecondZoneWhereThroughputsAreAboutTheSame) {
  const PlanSnapshot snapshot =
      swarm(2, {{0, "a"}, {0, "a"}, {1, "b", 1.02}, {1, "b", 1.02}, {-1, "a"}});
  const SwarmPlan plan = plan_swarm(snapshot, run_plan_options(true, 0));
  ASSERT_EQ(plan.moves.size(), 1U);
  EXPECT_EQ(plan.moves[0].to, StageId(1));
  EXPECT_NE(plan.moves[0].reason.find("too near each other"), std::string::npos);
  EXPECT_EQ(plan_swarm(without_zones(snapshot), run_plan_options(true, 0)).moves[0].to, StageId(0));
}

TEST(PlanZones, ThroughputComesFirst) {
  const SwarmPlan plan =
      plan_swarm(swarm(2, {{0, "a"}, {0, "a"}, {1, "b", 1.1}, {1, "b", 1.1}, {-1, "a"}}),
                 run_plan_options(true, 0));
  ASSERT_EQ(plan.moves.size(), 1U);
  EXPECT_EQ(plan.moves[0].to, StageId(0));
}

TEST(PlanZones, WhoHoldsTheWeakestStagesStateServesItAtOnce) {
  PlanSnapshot snapshot = swarm(2, {{0, "a"}, {0, "a"}, {1, "b"}, {1, "b"}, {-1, "a"}});
  snapshot.peers[4].shadows = {{StageId(0), true}};
  EXPECT_EQ(plan_swarm(snapshot, run_plan_options(true, 0)).moves.at(0).to, StageId(0));
  snapshot.peers[4].shadows.clear();
  EXPECT_EQ(plan_swarm(snapshot, run_plan_options(true, 0)).moves.at(0).to, StageId(1));
}

// ---- Shadows ------------------------------------------------------------------------------------

std::vector<PeerId> hosts_of(const SwarmPlan& plan, int stage, bool add = true) {
  std::vector<PeerId> hosts;
  for (const ShadowChange& change : plan.shadows)
    if (std::cmp_equal(change.stage.value, stage) && change.add == add)
      hosts.push_back(change.peer);
  return hosts;
}

TEST(PlanZones, AShadowIsHostedInAnotherZoneThanItsStage) {
  const PlanSnapshot snapshot = swarm(2, {{0, "a"}, {0, "a"}, {1, "a"}, {1, "a"}, {1, "b"}});
  EXPECT_EQ(hosts_of(plan_swarm(snapshot, run_plan_options(true, 1)), 0), (std::vector{PeerId(5)}));
  EXPECT_EQ(hosts_of(plan_swarm(without_zones(snapshot), run_plan_options(true, 1)), 0),
            (std::vector{PeerId(3)}));
}

TEST(PlanZones, WhereNoZoneIsLeftAShadowIsHostedOnAnotherMachine) {
  PlanSnapshot snapshot = swarm(2, {{0, "a"}, {0, "b"}, {1, "a"}, {1, "b"}, {1, "b"}});
  snapshot.peers[2].at.host = snapshot.peers[0].at.host;
  EXPECT_EQ(hosts_of(plan_swarm(snapshot, run_plan_options(true, 1)), 0), (std::vector{PeerId(4)}));
}

// Under auto nobody pays for a zone more than a shadow may cost.
TEST(PlanZones, AnotherZoneDoesNotMakeACriticalPeerHostAShadow) {
  const PlanSnapshot snapshot =
      swarm(3, {{0, "a"}, {0, "a"}, {1, "a", 3}, {1, "a", 3}, {2, "b"}, {2, "b"}});
  EXPECT_EQ(hosts_of(plan_swarm(snapshot, run_plan_options(true, std::nullopt)), 0),
            (std::vector{PeerId(3)}));
}

TEST(PlanZones, OfTooManyShadowsTheOneInAnotherZoneStays) {
  PlanSnapshot snapshot = swarm(2, {{0, "a"}, {0, "a"}, {1, "b"}, {1, "a"}, {1, "a"}});
  snapshot.peers[2].shadows = {{StageId(0), true}};
  snapshot.peers[3].shadows = {{StageId(0), true}};
  EXPECT_EQ(hosts_of(plan_swarm(snapshot, run_plan_options(true, 1)), 0, /*add=*/false),
            (std::vector{PeerId(4)}));
  EXPECT_EQ(hosts_of(plan_swarm(without_zones(snapshot), run_plan_options(true, 1)), 0, false),
            (std::vector{PeerId(3)}));
}

}  // namespace
}  // namespace swarmline
