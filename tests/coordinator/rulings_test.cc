#include "pipeline/coordinator/run/rulings.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

const Seat kSeat{PeerId{1}, StageId{0}, Incarnation{1}};

TEST(Rulings, TheFirstWordOfASeatsEndCounts) {
  Rulings rulings;
  EXPECT_FALSE(rulings.any());
  rulings.lose(kSeat, "silent");
  rulings.lose(kSeat, "left", Departure::kLeft);
  EXPECT_TRUE(rulings.any());
  const auto losses = rulings.take_losses();
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].why, "silent");
  EXPECT_FALSE(rulings.any());
}

TEST(Rulings, WhereAllSeatsAreOverNoneIsLost) {
  Rulings rulings;
  rulings.lose(kSeat, "silent");
  rulings.stage_is_gone({.seat = kSeat, .why = "silent", .how = Departure::kLost});
  rulings.roll_back("again");
  rulings.begin_again("cut off", true);
  rulings.fail_run("failed");
  rulings.clear_losses();
  EXPECT_TRUE(rulings.take_losses().empty());
  EXPECT_TRUE(rulings.take_gone_stages().empty());
  EXPECT_FALSE(rulings.take_rollback().has_value());
  EXPECT_EQ(rulings.take_failure(), "failed") << "that stands";
  EXPECT_FALSE(rulings.any());
}

}  // namespace
}  // namespace swarmline
