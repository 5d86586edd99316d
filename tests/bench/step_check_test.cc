#include "bench/coordinator_load/step_check.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

class StepCheckTest : public ::testing::Test {
 protected:
  void accept_all(std::uint64_t step) {
    for (std::uint32_t stage = 0; stage < 2; ++stage)
      for (std::uint32_t index = 0; index < 3; ++index)
        EXPECT_EQ(check_.accepted(step, stage, index), "");
  }
  StepCheck check_{2, 3};
};

TEST_F(StepCheckTest, AStepWithEveryContributionOnceIsRight) {
  accept_all(0);
  accept_all(1);  // the next one may begin before all have heard of the commit
  EXPECT_EQ(check_.committed(0), "");
  EXPECT_EQ(check_.committed(1), "");
}

TEST_F(StepCheckTest, ASecondOwnerIsWrong) {
  accept_all(0);
  EXPECT_EQ(check_.accepted(0, 1, 2), "microbatch 2 of step 0 was counted twice in stage 1");
}

TEST_F(StepCheckTest, WhatIsMissingIsNamed) {
  EXPECT_EQ(check_.accepted(0, 0, 0), "");
  EXPECT_EQ(check_.committed(0),
            "step 0 was committed with 1 of 6 contributions; the first that is missing is "
            "microbatch 1 in stage 0");
  EXPECT_EQ(check_.committed(7), "step 7 was committed with 0 of 6 contributions");
}

TEST_F(StepCheckTest, WhatTheRunLacksIsWrong) {
  EXPECT_NE(check_.accepted(0, 2, 0), "");
  EXPECT_NE(check_.accepted(0, 0, 3), "");
}

}  // namespace
}  // namespace swarmline
