#include "pipeline/coordinator/steps/broken_links.h"

#include <gtest/gtest.h>

#include "pipeline/protocol/knobs.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr PeerId kA{1}, kB{2}, kC{3}, kD{4};
constexpr Instant kNow = Instant(1h);

TEST(BrokenLinks, OfTwoAloneTheLaterOneIsAtFault) {
  BrokenLinks links;
  links.broke(kB, kA, kNow);
  EXPECT_EQ(links.at_fault(kA, kB, kNow), kB);
  EXPECT_EQ(links.at_fault(kB, kA, kNow), kB);
  EXPECT_FALSE(links.others_break_too(kA, kB, kNow));
  EXPECT_EQ(links.ended_an_attempt(kA, kB), 1U);
  EXPECT_EQ(links.ended_an_attempt(kB, kA), 2U);
  links.clear();
  EXPECT_TRUE(links.empty());
}

// Nobody says that it is his end: he accepts nothing, and has nothing to send himself.
TEST(BrokenLinks, TheOneEndOfManyIsAtFault) {
  const MarkExpected many("broken_links.one_end_of_many");
  BrokenLinks links;
  for (const PeerId other : {kA, kC, kD}) links.broke(other, kB, kNow);
  for (const PeerId other : {kA, kC, kD}) EXPECT_EQ(links.at_fault(other, kB, kNow + 1s), kB);
  EXPECT_FALSE(links.others_break_too(kB, kD, kNow));
  EXPECT_EQ(links.at_fault(kB, kD, kNow + knobs().mesh_patience), kD) << "that is long ago";
}

TEST(BrokenLinks, WhereTheyHaveNoEndInCommonItIsWhatLiesBetweenForAWhile) {
  BrokenLinks links;
  links.broke(kA, kB, kNow);
  links.broke(kC, kD, kNow);
  EXPECT_TRUE(links.others_break_too(kA, kB, kNow));
  EXPECT_FALSE(links.others_break_too(kA, kC, kNow)) << "each has an end in it";
  links.broke(kC, kD, kNow + knobs().mesh_patience);
  EXPECT_FALSE(links.others_break_too(kA, kB, kNow + knobs().mesh_patience));
}

}  // namespace
}  // namespace swarmline
