#include "base/marks.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

void reach(bool second) {
  SWARMLINE_MARK("marks_test.first");
  if (second) SWARMLINE_MARK("marks_test.second");
}

TEST(Marks, AreKnownBeforeTheyAreHit) {
  ASSERT_NE(Mark::find("marks_test.second"), nullptr);
  EXPECT_EQ(Mark::find("marks_test.third"), nullptr);
}

TEST(Marks, CountHits) {
  const MarkExpected first("marks_test.first");
  const std::uint64_t before = Mark::find("marks_test.second")->hits();
  reach(false);
  EXPECT_EQ(Mark::find("marks_test.second")->hits(), before);
  reach(true);
  EXPECT_EQ(Mark::find("marks_test.second")->hits(), before + 1);
}

TEST(Marks, AnExpectedMarkThatIsNotHitFailsItsTest) {
  EXPECT_NONFATAL_FAILURE({ const MarkExpected second("marks_test.second"); }, "was not hit");
  EXPECT_NONFATAL_FAILURE({ const MarkExpected third("marks_test.third"); }, "no line has");
}

TEST(Marks, AreListedByName) {
  const auto all = Mark::all();
  for (std::size_t i = 1; i < all.size(); ++i) EXPECT_LT(all[i - 1]->name(), all[i]->name());
}

}  // namespace
}  // namespace swarmline
