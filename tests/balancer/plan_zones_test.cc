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
    PlanPeer peer{.peer = PeerId(number), .stage = {}, .speed = at.speed, .shadows = {}};
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

// ---- Moves --------------------------------------------------------------------------------------

// Stage 0 is slower by a fifth than stage 1, which could give a small peer: 6 to 5 becomes 5.5.
PlanSnapshot uneven(const std::vector<At>& fast_stage) {
  std::vector<At> peers = {{0, "a", 2.5}, {0, "b", 2.5}};
  peers.insert(peers.end(), fast_stage.begin(), fast_stage.end());
  return swarm(2, peers);
}
PlanOptions unprotected() {
  return {.hysteresis = 0.02, .shadows_per_stage = 0};
}

TEST(PlanZones, AMoveLeavesNoStageWithOnePeerForAFewPercent) {
  const PlanSnapshot two_left = uneven({{1, "a", 5}, {1, "b", 0.5}, {1, "a", 0.5}});
  ASSERT_EQ(plan_swarm(two_left, unprotected()).moves.size(), 1U);
  const PlanSnapshot one_left = uneven({{1, "a", 5.5}, {1, "a", 0.5}});
  EXPECT_TRUE(plan_swarm(one_left, unprotected()).moves.empty());
  EXPECT_TRUE(plan_swarm(without_zones(one_left), unprotected()).moves.empty());
  PlanOptions careless = unprotected();
  careless.redundancy_worth = 0;
  EXPECT_EQ(plan_swarm(one_left, careless).moves.size(), 1U);
}

TEST(PlanZones, OnOneMachineThereIsNothingToSpread) {
  PlanSnapshot one_left = uneven({{1, "", 5.5}, {1, "", 0.5}});
  for (PlanPeer& peer : one_left.peers) peer.at = {.zone = "", .host = "127.0.0.1"};
  EXPECT_EQ(plan_swarm(one_left, unprotected()).moves.size(), 1U);
}

TEST(PlanZones, AReadyShadowIsAHolderToo) {
  PlanSnapshot snapshot = uneven({{1, "a", 5.5}, {1, "a", 0.5}});
  snapshot.peers[1].shadows = {{StageId(1), true}};
  const SwarmPlan plan = plan_swarm(snapshot, unprotected());
  ASSERT_EQ(plan.moves.size(), 1U);
  EXPECT_EQ(plan.moves[0].peer, PeerId(4));
}

// Whoever follows another stage gives that up when it moves.
TEST(PlanZones, TheLastShadowOfAStageWithOnePeerDoesNotMove) {
  PlanSnapshot snapshot = uneven({{1, "a", 5}, {1, "a", 0.5}, {1, "a", 0.5}, {2, "a", 9}});
  snapshot.stages.push_back(snapshot.stages[0]);
  ASSERT_EQ(plan_swarm(snapshot, unprotected()).moves.at(0).peer, PeerId(4));
  snapshot.peers[3].shadows = {{StageId(2), true}};
  const SwarmPlan plan = plan_swarm(snapshot, unprotected());
  ASSERT_EQ(plan.moves.size(), 1U);
  EXPECT_EQ(plan.moves[0].peer, PeerId(5));
}

TEST(PlanZones, AStageKeepsItsSecondZone) {
  PlanSnapshot snapshot = uneven({{1, "a", 5}, {1, "b", 0.5}, {1, "a", 0.4}});
  const SwarmPlan plan = plan_swarm(snapshot, unprotected());
  ASSERT_EQ(plan.moves.size(), 1U);
  EXPECT_EQ(plan.moves[0].peer, PeerId(5)) << "the other one is the stage's only one in b";
  EXPECT_EQ(plan_swarm(without_zones(snapshot), unprotected()).moves.at(0).peer, PeerId(4));
}

// Two change places: while they download, two stages would have one holder each.
TEST(PlanZones, MuchThroughputIsWorthARisk) {
  const std::vector<At> peers = {{0, "a", 1}, {0, "b", 1}, {1, "a", 5}, {1, "b", 5}};
  const SwarmPlan plan = plan_swarm(swarm(2, peers), unprotected());
  ASSERT_EQ(plan.moves.size(), 2U);
  EXPECT_NEAR(plan.throughput_after, 6, 1e-6);
}

// ---- Moves that only spread ---------------------------------------------------------------------

// With so small a state a download takes 0.4 s.
PlanSnapshot light(PlanSnapshot snapshot) {
  for (PlanStage& stage : snapshot.stages) stage.state_bytes = 10'000'000;
  return snapshot;
}

TEST(PlanZones, TwoChangePlacesWhereStagesCameTogetherInAZoneEach) {
  const std::vector<At> peers = {{0, "a"}, {0, "a"}, {0, "a"}, {1, "b"}, {1, "b"}, {1, "b"}};
  const SwarmPlan plan = plan_swarm(light(swarm(2, peers)), unprotected());
  ASSERT_EQ(plan.moves.size(), 2U) << "which gives both stages their second zone";
  EXPECT_EQ(plan.moves[0].to, StageId(0));
  EXPECT_EQ(plan.moves[1].to, StageId(1));
  EXPECT_EQ(plan.moves[0].reason, "all who hold stage 0 are in zone a");
  EXPECT_EQ(plan.throughput_after, plan.throughput_before);
  EXPECT_TRUE(plan_swarm(light(without_zones(swarm(2, peers))), unprotected()).moves.empty());
}

TEST(PlanZones, NobodyMovesForAZoneWhereThatCostsMore) {
  const std::vector<At> peers = {{0, "a"}, {0, "a"}, {0, "a"}, {1, "b"}, {1, "b"}, {1, "b"}};
  const PlanSnapshot heavy = swarm(2, peers);  // a third of a stage is away for 96 s: 1.8 %
  EXPECT_TRUE(plan_swarm(heavy, unprotected()).moves.empty());
  PlanOptions generous = unprotected();
  generous.spread_cost_max = 0.02;
  EXPECT_EQ(plan_swarm(heavy, generous).moves.size(), 2U);
  generous.spread_cost_max = 0;
  EXPECT_TRUE(plan_swarm(light(heavy), generous).moves.empty());
  // Nor where the exchange would leave a stage slower for good.
  const std::vector<At> unlike = {{0, "a"},      {0, "a"},      {0, "a"},
                                  {1, "b", 0.8}, {1, "b", 0.8}, {1, "b", 1.4}};
  EXPECT_TRUE(plan_swarm(light(swarm(2, unlike)), unprotected()).moves.empty());
}

TEST(PlanZones, AStageWithAPeerToSpareGivesIt) {
  const PlanSnapshot snapshot =
      light(swarm(2, {{0, "a"}, {0, "a"}, {1, "b"}, {1, "a"}, {1, "b", 0.01}}));
  const SwarmPlan plan = plan_swarm(snapshot, unprotected());
  ASSERT_EQ(plan.moves.size(), 1U);
  EXPECT_EQ(plan.moves[0].peer, PeerId(5));
  EXPECT_EQ(plan.moves[0].to, StageId(0));
}

TEST(PlanZones, NoStageLosesItsOwnSecondZoneForAnother) {
  const PlanSnapshot snapshot = light(swarm(2, {{0, "a"}, {0, "a"}, {1, "a"}, {1, "b"}}));
  EXPECT_TRUE(plan_swarm(snapshot, unprotected()).moves.empty());
}

TEST(PlanZones, AShadowInAnotherZoneIsCheaperThanAMove) {
  PlanSnapshot snapshot =
      light(swarm(2, {{0, "a"}, {0, "a"}, {0, "a"}, {1, "b"}, {1, "b"}, {1, "b"}}));
  snapshot.peers[0].shadows = {{StageId(1), false}};
  snapshot.peers[3].shadows = {{StageId(0), true}};
  PlanOptions kept = unprotected();
  kept.shadows_per_stage = 1;
  EXPECT_TRUE(plan_swarm(snapshot, kept).moves.empty());
}

// Two peers a stage: while they download, each stage hangs on one. For 96 s of 1800 nobody does
// that, whatever throughput may be given up.
TEST(PlanZones, ItIsNoRiskForLong) {
  const std::vector<At> peers = {{0, "a"}, {0, "a"}, {1, "b"}, {1, "b"}};
  EXPECT_EQ(plan_swarm(light(swarm(2, peers)), unprotected()).moves.size(), 2U);
  PlanOptions options = unprotected();
  options.spread_cost_max = 0.03;
  EXPECT_TRUE(plan_swarm(swarm(2, peers), options).moves.empty());
  options.spread_cost_max = 0.06;  // 108 s
  EXPECT_EQ(plan_swarm(swarm(2, peers), options).moves.size(), 2U);
}

TEST(PlanZones, ARunThatMovesNobodySpreadsNobody) {
  const std::vector<At> peers = {{0, "a"}, {0, "a"}, {1, "b"}, {1, "b"}};
  EXPECT_TRUE(plan_swarm(light(swarm(2, peers)), run_plan_options(false, 0)).moves.empty());
  EXPECT_EQ(plan_swarm(light(swarm(2, peers)), run_plan_options(true, 0)).moves.size(), 2U);
}

TEST(PlanZones, AnEmptiedStageIsFilledByWhoIsNoStagesSecondZone) {
  const PlanSnapshot snapshot = swarm(3, {{0, "b"}, {0, "a"}, {0, "a"}, {1, "a"}, {1, "b"}});
  const SwarmPlan plan = plan_swarm(snapshot, unprotected());
  ASSERT_FALSE(plan.moves.empty());
  EXPECT_EQ(plan.moves[0].to, StageId(2));
  EXPECT_EQ(plan.moves[0].peer, PeerId(2));
  EXPECT_EQ(plan_swarm(without_zones(snapshot), unprotected()).moves.at(0).peer, PeerId(1));
}

}  // namespace
}  // namespace swarmline
