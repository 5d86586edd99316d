#include "pipeline/protocol/group_plan.h"

#include <gtest/gtest.h>

#include "base/ids.h"

namespace swarmline {
namespace {

constexpr StageId stage(std::uint16_t value) {
  return StageId{value};
}
constexpr GroupId group(std::uint32_t value) {
  return GroupId{value};
}

TEST(GroupPlan, EachStageIsAGroup) {
  const GroupPlan plan(3, false);
  EXPECT_EQ(plan.groups(), (std::vector{group(0), group(1), group(2)}));
  EXPECT_EQ(plan.stages_of(group(1)), std::vector{stage(1)});
  EXPECT_EQ(plan.groups_of(stage(2)), std::vector{group(2)});
  EXPECT_FALSE(plan.has(group(3)));
  EXPECT_FALSE(plan.contains(group(1), stage(2)));
}

TEST(GroupPlan, ASharedEmbeddingIsAGroupOfTheFirstAndTheLastStage) {
  const GroupPlan plan(3, true);
  EXPECT_EQ(plan.groups(), (std::vector{group(0), group(1), group(2), group(3)}));
  EXPECT_TRUE(plan.is_shared(group(3)));
  EXPECT_EQ(plan.stages_of(group(3)), (std::vector{stage(0), stage(2)}));
  EXPECT_EQ(plan.groups_of(stage(0)), (std::vector{group(0), group(3)}));
  EXPECT_EQ(plan.groups_of(stage(1)), std::vector{group(1)});
}

TEST(GroupPlan, OneStageSharesWithNobody) {
  EXPECT_EQ(GroupPlan(1, true).groups(), std::vector{group(0)});
}

TEST(GroupPlan, RegionsSplitAnArenaAtTheSharedEmbedding) {
  ParameterLayout layout;
  layout.elements = 100;
  layout.tied_offset = 70;
  const GroupPlan plan(2, true);
  EXPECT_EQ(plan.region_of(group(0), layout).elements, 70U);
  EXPECT_EQ(plan.region_of(group(2), layout).first, 70U);
  EXPECT_EQ(plan.region_of(group(2), layout).elements, 30U);
}

TEST(Numbers, OfTermsAndSendersNeverMeet) {
  EXPECT_NE(resend_attempt(PeerId{1}, 7), resend_attempt(PeerId{2}, 7));
  EXPECT_NE(lease_attempt(Term{1}, 7), lease_attempt(Term{2}, 7));
  EXPECT_NE(second_run(Attempt{7}), Attempt{7});
  EXPECT_TRUE(is_second_run(second_run(lease_attempt(Term{kTermMax}, 0xFFFFFFFF))));
  EXPECT_FALSE(is_second_run(lease_attempt(Term{kTermMax}, 0xFFFFFFFF)));
  EXPECT_LT(first_round_attempt(Term{1}), first_round_attempt(Term{2}));
  EXPECT_LT(first_phase_epoch(Term{1}), first_phase_epoch(Term{2}));
}

}  // namespace
}  // namespace swarmline
