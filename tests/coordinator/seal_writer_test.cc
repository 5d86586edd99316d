// What seals say of the groups that average.
#include "pipeline/coordinator/steps/seal_writer.h"

#include <gtest/gtest.h>

#include "tests/coordinator/parts_bench.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

class Seals : public ::testing::Test {
 protected:
  PartsBench bench;
  const Seat a = bench.seated(0), b = bench.seated(1);
};

TEST_F(Seals, WhoHasTheListsGetsASealThatNamesThem) {
  const Seat mate = bench.seated(1);
  bench.members.refresh_views();
  for (const Seat& seat : {a, b}) bench.members.news_for(seat);
  bench.open_step(0);
  bench.complete_step(0);
  bench.round.begin(0, Term{1});
  const auto short_one = bench.told<wire::Seal>(b, MessageKind::kSeal).at(0).groups(0);
  EXPECT_EQ(short_one.members_size(), 0);
  ASSERT_EQ(short_one.rosters_size(), 1);
  EXPECT_EQ(short_one.rosters(0).stage(), 1U);
  // One that was not told of the list hears the names.
  const auto long_one = bench.told<wire::Seal>(mate, MessageKind::kSeal).at(0).groups(0);
  EXPECT_EQ(long_one.members_size(), 2);
  EXPECT_EQ(long_one.rosters_size(), 0);
}

// Somebody sits down, and nobody has been told.
TEST_F(Seals, MembersOtherThanThoseOfTheListAreNamed) {
  bench.members.refresh_views();
  for (const Seat& seat : {a, b}) bench.members.news_for(seat);
  bench.seated(1);
  bench.open_step(0);
  bench.complete_step(0);
  bench.round.begin(0, Term{1});
  const auto seal = bench.told<wire::Seal>(b, MessageKind::kSeal).at(0).groups(0);
  EXPECT_EQ(seal.members_size(), 2);
  EXPECT_EQ(seal.rosters_size(), 0);
}

// Whoever has the list and whoever hears the names cut the vector alike.
TEST_F(Seals, SlicesAreCutByWhatMembersSayOfTheirBandwidth) {
  const MarkExpected cut("uneven_slices.cut");
  const Seat slow = bench.seated(1, 1e8), fast = bench.seated(1, 1e9);
  bench.members.refresh_views();
  for (const Seat& seat : {a, b, slow}) bench.members.news_for(seat);
  bench.open_step(0);
  bench.complete_step(0);
  bench.round.begin(0, Term{1});
  const std::uint64_t elements = bench.shape.elements_of(GroupId{1});
  for (const Seat& seat : {b, slow, fast}) {
    const auto group = bench.told<wire::Seal>(seat, MessageKind::kSeal).at(0).groups(0);
    EXPECT_EQ(group.rosters_size(), seat == fast ? 0 : 1);
    ASSERT_EQ(group.slice_ends_size(), 3) << to_string(seat);
    EXPECT_EQ(group.slice_ends(0), group.slice_ends(1)) << "the slow one sums nothing";
    EXPECT_EQ(group.slice_ends(2), elements);
  }
  EXPECT_EQ(bench.told<wire::Seal>(a, MessageKind::kSeal).at(0).groups(0).slice_ends_size(), 0)
      << "its group has one member";
}

}  // namespace
}  // namespace swarmline
