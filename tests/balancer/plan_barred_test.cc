// Peers that can't serve one of the stages.
#include <algorithm>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "balancer/plan.h"

namespace swarmline {
namespace {

constexpr StageId kBarred{0}, kOther{1};

PlanSnapshot swarm(const std::vector<std::optional<StageId>>& seats) {
  PlanSnapshot snapshot{.stages = std::vector<PlanStage>(2, {.cost = 1, .state_bytes = 1'000'000}),
                        .peers = {}};
  for (std::size_t i = 0; i < seats.size(); ++i)
    snapshot.peers.push_back(
        {.peer = PeerId(static_cast<std::uint32_t>(i + 1)), .stage = seats[i], .shadows = {}});
  return snapshot;
}

TEST(PlanBarred, NobodyIsSentWhereItIsBarred) {
  PlanSnapshot snapshot = swarm({kBarred, kOther, kOther, kOther, kOther, std::nullopt});
  for (const std::size_t p : {1U, 2U, 3U, 5U}) snapshot.peers[p].barred = kBarred;
  const SwarmPlan plan = plan_swarm(snapshot, {.shadows_per_stage = 0});
  ASSERT_FALSE(plan.moves.empty());
  for (const PlanMove& move : plan.moves)
    EXPECT_EQ(move.to, move.peer == PeerId(5) ? kBarred : kOther) << move.peer.value;
  EXPECT_TRUE(std::ranges::any_of(plan.moves, [](const PlanMove& move) {
    return move.to == kBarred;
  })) << "the only one that may goes there";
}

TEST(PlanBarred, NobodyFollowsAStageThatItIsBarredFrom) {
  PlanSnapshot snapshot = swarm({kBarred, kBarred, kOther, kOther});
  snapshot.peers[2].barred = snapshot.peers[3].barred = kBarred;
  const SwarmPlan plan = plan_swarm(snapshot, {.shadows_per_stage = 1});
  ASSERT_EQ(plan.shadows.size(), 1U);
  EXPECT_EQ(plan.shadows[0].stage, kOther);
}

}  // namespace
}  // namespace swarmline
