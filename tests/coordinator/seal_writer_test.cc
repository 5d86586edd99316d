// What seals say of the groups that average.
#include "pipeline/coordinator/steps/seal_writer.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/coordinator/parts_bench.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

class Seals : public ::testing::Test {
 protected:
  // Step 0 is sealed.
  void seal() {
    bench.open_step(0);
    bench.complete_step(0);
    bench.round.begin(0, Term{1});
  }
  // They know who serves their stage.
  void tell(const std::vector<Seat>& seats) {
    bench.members.refresh_views();
    for (const Seat& seat : seats) bench.members.news_for(seat);
  }
  wire::ReduceGroup told(const Seat& seat) {
    return bench.told<wire::Seal>(seat, MessageKind::kSeal).at(0).groups(0);
  }

  PartsBench bench;
  const Seat a = bench.seated(0), b = bench.seated(1);
};

TEST_F(Seals, WhoHasTheListsGetsASealThatNamesThem) {
  const Seat mate = bench.seated(1);
  tell({a, b});
  seal();
  const auto short_one = told(b);
  EXPECT_EQ(short_one.members_size(), 0);
  ASSERT_EQ(short_one.rosters_size(), 1);
  EXPECT_EQ(short_one.rosters(0).stage(), 1U);
  // One that was not told of the list hears the names.
  const auto long_one = told(mate);
  EXPECT_EQ(long_one.members_size(), 2);
  EXPECT_EQ(long_one.rosters_size(), 0);
}

// Somebody sits down, and nobody has been told.
TEST_F(Seals, MembersOtherThanThoseOfTheListAreNamed) {
  tell({a, b});
  bench.seated(1);
  seal();
  const auto group = told(b);
  EXPECT_EQ(group.members_size(), 2);
  EXPECT_EQ(group.rosters_size(), 0);
}

// Whoever has the list and whoever hears the names cut the vector alike.
TEST_F(Seals, SlicesAreCutByWhatMembersSayOfTheirBandwidth) {
  const MarkExpected cut("uneven_slices.cut");
  const Seat slow = bench.seated(1, 1e8), fast = bench.seated(1, 1e9);
  tell({a, b, slow});
  seal();
  const std::uint64_t elements = bench.shape.elements_of(GroupId{1});
  for (const Seat& seat : {b, slow, fast}) {
    const auto group = told(seat);
    EXPECT_EQ(group.rosters_size(), seat == fast ? 0 : 1);
    ASSERT_EQ(group.slice_ends_size(), 3) << to_string(seat);
    EXPECT_EQ(group.slice_ends(0), group.slice_ends(1)) << "the slow one sums nothing";
    EXPECT_EQ(group.slice_ends(2), elements);
  }
  EXPECT_EQ(told(a).slice_ends_size(), 0) << "its group has one member";
}

}  // namespace
}  // namespace swarmline
