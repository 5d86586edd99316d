// Room that was lost comes back in steps that go well, later each time that it is not there.
#include "pipeline/stage/microbatches/admit_room.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

std::uint64_t steps_until_more(AdmitRoom& room, std::uint64_t one) {
  std::uint64_t steps = 1;
  while (!room.on_step(one)) ++steps;
  return steps;
}

TEST(AdmitRoom, ComesBackStepByStepToWhatWasMeasured) {
  AdmitRoom room(100);
  EXPECT_FALSE(room.on_step(10)) << "nothing is missing";
  room.on_full(75);
  EXPECT_EQ(room.bytes(), 75U);
  EXPECT_EQ(steps_until_more(room, 10), AdmitRoom::kStepsAtFirst);
  EXPECT_EQ(room.bytes(), 85U);
  EXPECT_EQ(steps_until_more(room, 10), AdmitRoom::kStepsAtFirst);
  EXPECT_EQ(steps_until_more(room, 10), AdmitRoom::kStepsAtFirst);
  EXPECT_EQ(room.bytes(), 100U) << "and no further";
  for (int step = 0; step < 100; ++step) EXPECT_FALSE(room.on_step(10));
}

TEST(AdmitRoom, ATryThatFailsIsMadeHalfAsOften) {
  AdmitRoom room(100);
  room.on_full(50);
  room.on_full(60);
  EXPECT_EQ(room.bytes(), 50U) << "the same want of room, told twice";
  std::uint64_t expected = AdmitRoom::kStepsAtFirst;
  for (int tries = 0; tries < 10; ++tries) {
    EXPECT_EQ(steps_until_more(room, 10), expected);
    room.on_full(50);
    expected = std::min(2 * expected, AdmitRoom::kStepsMax);
  }
  EXPECT_EQ(expected, AdmitRoom::kStepsMax);
}

TEST(AdmitRoom, AStepWithoutMicrobatchesTeachesNothing) {
  AdmitRoom room(100);
  room.on_full(50);
  for (std::uint64_t step = 0; step < 2 * AdmitRoom::kStepsAtFirst; ++step)
    EXPECT_FALSE(room.on_step(0));
}

}  // namespace
}  // namespace swarmline
