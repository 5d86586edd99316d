// How members of islands move their sums, and when they meet anew.
#include "pipeline/coordinator/steps/island_fabrics.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/mark_expected.h"
#include "tests/pipeline/phases_and_seats.h"

namespace swarmline {
namespace {

using Kinds = std::vector<FabricKind>;

GpuIdentity gpu(const char* uuid, std::uint32_t nccl = 22809, bool ipc = true) {
  return {.uuid = uuid, .nccl = nccl, .ipc = ipc};
}

TEST(IslandFabricsTest, OneCardEachTakesNcclASharedOneMappedMemory) {
  using Gpus = std::vector<GpuIdentity>;
  EXPECT_EQ(fabric_of(Gpus{gpu("a"), gpu("b")}), FabricKind::kNccl);
  EXPECT_EQ(fabric_of(Gpus{gpu("a"), gpu("b"), gpu("a")}), FabricKind::kIpc);
  EXPECT_EQ(fabric_of(Gpus{gpu("a"), gpu("b", 22703)}), FabricKind::kIpc) << "another version";
  EXPECT_EQ(fabric_of(Gpus{gpu("a"), gpu("b", 0)}), FabricKind::kIpc) << "one has none";
  EXPECT_EQ(fabric_of(Gpus{gpu("a"), gpu("a", 22809, false)}), FabricKind::kNone);
  EXPECT_EQ(fabric_of(Gpus{gpu("a"), GpuIdentity()}), FabricKind::kNone) << "one has no GPU";
  EXPECT_EQ(fabric_of(Gpus{gpu("a")}), FabricKind::kNone) << "alone";
  EXPECT_EQ(fabric_of(Gpus(kFabricRanksMax + 1, gpu("a"))), FabricKind::kNone);
}

class IslandMeetings : public testing::Test {
 protected:
  IslandMeetings() { fabrics_.begin(Term{3}); }
  IslandFabrics::Told tell(std::uint32_t first = 1, std::uint64_t elements = 1000) {
    return fabrics_.tell(GroupId{0}, elements, {seat_of(first, 0), seat_of(8, 0), seat_of(9, 0)},
                         {0, 0, 2}, {gpu("a"), gpu("b"), gpu("c")});
  }

  const Kinds with_ = {FabricKind::kNccl, FabricKind::kNccl, FabricKind::kNone};
  IslandFabrics fabrics_;
};

TEST_F(IslandMeetings, MembersMeetOnceForAllThatGoesWell) {
  const MarkExpected anew("island_fabrics.meet_anew");
  const IslandFabrics::Told first = tell();
  EXPECT_EQ(first.kinds, with_);
  EXPECT_NE(first.meeting, 0U);
  fabrics_.on_committed();
  EXPECT_EQ(tell().meeting, first.meeting);
  fabrics_.on_committed();
  EXPECT_NE(tell(2).meeting, first.meeting) << "another member";
}

TEST_F(IslandMeetings, MembersMeetAnewAfterAnAttemptThatDidNotEndWell) {
  const std::uint64_t first = tell().meeting;
  const std::uint64_t again = tell().meeting;
  EXPECT_NE(again, first) << "the same step once more";
  fabrics_.on_disturbed(GroupId{0});
  fabrics_.on_committed();
  const std::uint64_t next = tell().meeting;
  EXPECT_NE(next, again) << "a member took the result from elsewhere";
  fabrics_.on_committed();
  fabrics_.on_rollback();
  EXPECT_NE(tell().meeting, next);
}

TEST_F(IslandMeetings, AnotherCoordinatorHasOtherNumbers) {
  const std::uint64_t first = tell().meeting;
  IslandFabrics later;
  later.begin(Term{4});
  EXPECT_GT(
      later.tell(GroupId{0}, 1000, {seat_of(1, 0), seat_of(2, 0)}, {0, 0}, {gpu("a"), gpu("b")})
          .meeting,
      first);
}

TEST_F(IslandMeetings, WhatFailsIsTriedOverLinksAndTwiceInARowGivenUp) {
  const MarkExpected given_up("island_fabrics.given_up");
  tell();
  fabrics_.on_failed(GroupId{0});
  EXPECT_TRUE(tell().kinds.empty()) << "over links at once";
  fabrics_.on_committed();
  EXPECT_EQ(tell().kinds, with_) << "and past them in the next step";
  fabrics_.on_committed();  // well: the failure before counts no more
  tell();
  for (int failure = 0; failure < 2; ++failure) {
    fabrics_.on_failed(GroupId{0});
    EXPECT_TRUE(tell().kinds.empty());
    fabrics_.on_committed();
    EXPECT_EQ(tell().kinds, failure == 0 ? with_ : Kinds{}) << failure;
  }
}

// Whoever adds a slice keeps the others' parts of it where the region is.
TEST_F(IslandMeetings, ARegionTooSmallForItsMembersHasNone) {
  const std::vector<Seat> seats(4, seat_of(1, 0));
  const std::vector<GpuIdentity> gpus = {gpu("a"), gpu("b"), gpu("c"), gpu("d")};
  EXPECT_TRUE(fabrics_.tell(GroupId{1}, 15, seats, {0, 0, 0, 0}, gpus).kinds.empty());
  EXPECT_FALSE(fabrics_.tell(GroupId{2}, 16, seats, {0, 0, 0, 0}, gpus).kinds.empty());
}

}  // namespace
}  // namespace swarmline
