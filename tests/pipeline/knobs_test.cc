#include "pipeline/protocol/knobs.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

TEST(Knobs, TheTableHasEveryKnob) {
  std::size_t bytes = 0;
  for (const KnobInfo& knob : knob_table()) {
    EXPECT_NE(knob.duration == nullptr, knob.count == nullptr) << knob.name;
    EXPECT_LE(knob.low, 1) << knob.name;
    EXPECT_GE(knob.high, 1) << knob.name;
    EXPECT_TRUE(knob.low < 1 || knob.high > 1) << knob.name << " has no hostile value";
    if (knob.gives_up) EXPECT_EQ(knob.low, 1) << knob.name;
    bytes += knob.duration != nullptr ? sizeof(Duration) : sizeof(std::uint32_t);
  }
  EXPECT_LE(bytes, sizeof(Knobs));
  EXPECT_GT(bytes + knob_table().size() * sizeof(std::uint32_t), sizeof(Knobs));
}

TEST(Knobs, AreTurnedForAWhile) {
  const Duration before = knobs().reduce_deadline;
  {
    Knobs turned;
    turned.reduce_deadline = std::chrono::seconds(1);
    const TurnedKnobs now(turned);
    EXPECT_EQ(knobs().reduce_deadline, std::chrono::seconds(1));
  }
  EXPECT_EQ(knobs().reduce_deadline, before);
}

}  // namespace
}  // namespace swarmline
