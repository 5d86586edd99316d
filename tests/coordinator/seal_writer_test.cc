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

  // A run that wants islands.
  static CoordinatorOptions on_hosts() {
    CoordinatorOptions options = bench_options(2, 4);
    options.config.net.islands = Islands::kHost;
    return options;
  }
  static std::vector<std::uint32_t> speakers(const wire::ReduceGroup& group) {
    return {group.speakers().begin(), group.speakers().end()};
  }

  explicit Seals(const CoordinatorOptions& options = bench_options(2, 4)) : bench(options) {}

  PartsBench bench;
  const Seat a = bench.seated(0), b = bench.seated(1, 0, "left");
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

// Nobody speaks for others, unless the run's config wants it.
TEST_F(Seals, MembersOnOneHostEachSpeakForThemselves) {
  const Seat mate = bench.seated(1, 0, "left"), other = bench.seated(1, 0, "right");
  seal();
  for (const Seat& seat : {b, mate, other}) EXPECT_EQ(told(seat).speakers_size(), 0);
}

class SealsOnHosts : public Seals {
 protected:
  SealsOnHosts() : Seals(on_hosts()) {}
};

// By the list or by names: all hear of the same islands, and slices are of those who speak.
TEST_F(SealsOnHosts, OneMemberOfAHostSpeaksForAllOfIt) {
  const MarkExpected formed("islands.formed");
  const Seat other = bench.seated(1, 1e9, "right");
  const Seat third = bench.seated(1, 1e8), mate = bench.seated(1, 1e9, "left");
  tell({a, b, other, third});
  seal();
  const std::uint64_t elements = bench.shape.elements_of(GroupId{1});
  for (const Seat& seat : {b, other, third, mate}) {
    const auto group = told(seat);
    EXPECT_EQ(speakers(group), (std::vector<std::uint32_t>{0, 1, 2, 0})) << to_string(seat);
    ASSERT_EQ(group.slice_ends_size(), 3) << "of those who speak";
    EXPECT_EQ(group.slice_ends(1), elements) << "the slow one sums nothing";
  }
  EXPECT_EQ(told(a).speakers_size(), 0) << "its group has one member";
}

TEST_F(SealsOnHosts, AllOnOneHostAverageAsTheyAre) {
  const Seat mate = bench.seated(1, 0, "left");
  seal();
  for (const Seat& seat : {b, mate}) EXPECT_EQ(told(seat).speakers_size(), 0);
}

}  // namespace
}  // namespace swarmline
