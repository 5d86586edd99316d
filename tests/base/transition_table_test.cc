#include "base/transition_table.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

enum class Door : std::uint8_t { kOpen, kClosed, kLocked, kGone };
using enum Door;

constexpr Transitions<Door> kRows[] = {
    {kOpen, {kClosed}, "somebody shuts it"},
    {kClosed, {kOpen, kLocked}},
    {kLocked, {kClosed}, "somebody has the key"},
    {kOpen, {kGone}, "somebody takes it off its hinges"},
};
constexpr TransitionTable<Door, 4> kDoor({"open", "closed", "locked", "gone"}, kRows);

static_assert(kDoor.allows(kOpen, kClosed) && kDoor.allows(kOpen, kGone));

TEST(TransitionTable, AllowsWhatARowSaysAndNothingElse) {
  std::size_t allowed = 0;
  for (const Door from : kDoor.states())
    for (const Door to : kDoor.states()) allowed += kDoor.allows(from, to) ? 1 : 0;
  EXPECT_EQ(allowed, 5U);
  EXPECT_TRUE(kDoor.allows(kClosed, kLocked));
  EXPECT_FALSE(kDoor.allows(kOpen, kLocked)) << "it is shut first";
  EXPECT_FALSE(kDoor.allows(kOpen, kOpen)) << "that is no step";
  for (const Door to : kDoor.states()) EXPECT_FALSE(kDoor.allows(kGone, to)) << kDoor.name(to);
}

TEST(TransitionTable, HasNamesAndReasonsForPeople) {
  EXPECT_EQ(kDoor.name(kLocked), "locked");
  ASSERT_EQ(kDoor.rows().size(), 4U);
  EXPECT_EQ(kDoor.rows()[2].when, "somebody has the key");
  EXPECT_TRUE(kDoor.rows()[1].to.has(kLocked));
}

}  // namespace
}  // namespace swarmline
