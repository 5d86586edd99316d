#include "pipeline/protocol/hedge_budget.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

TEST(HedgeBudget, IsAShareOfAllMicrobatches) {
  HedgeBudget budget(0.05, 8);
  int spent = 0;
  for (int microbatch = 0; microbatch < 1000; ++microbatch) {
    budget.earn(1);
    spent += budget.spend() ? 1 : 0;
  }
  EXPECT_GE(spent, 49);
  EXPECT_LE(spent, 50);
}

TEST(HedgeBudget, KeepsWhatIsNotNeededForAsLongAsThereIsRoom) {
  HedgeBudget budget(0.05, 8);
  budget.earn(1e6);
  int spent = 0;
  while (budget.spend()) ++spent;
  EXPECT_EQ(spent, 8);
}

TEST(HedgeBudget, PaysForWhatOthersHaveTried) {
  HedgeBudget budget(0.5, 8);
  budget.earn(4);
  budget.charge(5);
  EXPECT_FALSE(budget.has_one());
  budget.earn(7);
  EXPECT_FALSE(budget.spend()) << "the debt comes first";
  budget.earn(1);
  EXPECT_TRUE(budget.spend());
}

TEST(HedgeBudget, NothingIsTriedTwiceWithoutAShare) {
  HedgeBudget budget(0, 8);
  budget.earn(1e9);
  EXPECT_FALSE(budget.spend());
}

}  // namespace
}  // namespace swarmline
