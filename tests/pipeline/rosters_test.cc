#include "pipeline/stage/common/rosters.h"

#include <gtest/gtest.h>

#include "base/limits.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {
namespace {

Seat seat(std::uint32_t peer, std::uint16_t stage = 1) {
  return {PeerId{peer}, StageId{stage}, Incarnation{1}};
}

wire::Roster roster(std::uint64_t serial, std::uint64_t base, const std::vector<Seat>& members,
                    const std::vector<Seat>& gone = {}, std::uint16_t stage = 1) {
  wire::Roster news;
  news.set_stage(stage);
  news.set_serial(serial);
  news.set_base(base);
  for (const Seat& member : members) {
    wire::GroupMember* named = news.add_members();
    *named->mutable_seat() = to_wire(member);
    named->set_address("host:" + std::to_string(member.peer.value));
  }
  for (const Seat& left : gone) *news.add_gone() = to_wire(left);
  return news;
}

wire::Seal seal_by(const std::vector<std::pair<std::uint16_t, std::uint64_t>>& lists) {
  wire::Seal seal;
  wire::ReduceGroup* group = seal.add_groups();
  for (const auto& [stage, serial] : lists) {
    wire::RosterName* name = group->add_rosters();
    name->set_stage(stage);
    name->set_serial(serial);
  }
  return seal;
}

std::vector<Seat> members_of(const wire::Seal& seal) {
  std::vector<Seat> members;
  for (const wire::GroupMember& member : seal.groups(0).members())
    members.push_back(from_wire(member.seat()));
  return members;
}

TEST(Rosters, AListIsSaidOnceThenWhatChanges) {
  Rosters rosters;
  ASSERT_TRUE(rosters.apply(roster(1, 0, {seat(1), seat(3)})));
  ASSERT_TRUE(rosters.apply(roster(2, 1, {seat(2)}, {seat(3)})));
  wire::Seal seal = seal_by({{1, 2}});
  ASSERT_TRUE(rosters.name_members(seal));
  EXPECT_EQ(members_of(seal), (std::vector{seat(1), seat(2)}));
  EXPECT_EQ(seal.groups(0).members(1).address(), "host:2");
  EXPECT_EQ(seal.groups(0).rosters_size(), 0);
  // Another coordinator counts from the beginning.
  ASSERT_TRUE(rosters.apply(roster(1, 0, {seat(9)})));
  EXPECT_EQ(rosters.serving(StageId{1}).size(), 1U);
}

TEST(Rosters, StageAfterStageIsTheOrderOfRanks) {
  Rosters rosters;
  ASSERT_TRUE(rosters.apply(roster(4, 0, {seat(1, 0), seat(5, 0)}, {}, 0)));
  ASSERT_TRUE(rosters.apply(roster(7, 0, {seat(2, 3)}, {}, 3)));
  wire::Seal seal = seal_by({{0, 4}, {3, 7}});
  ASSERT_TRUE(rosters.name_members(seal));
  EXPECT_EQ(members_of(seal), (std::vector{seat(1, 0), seat(5, 0), seat(2, 3)}));
}

TEST(Rosters, WhatDoesNotFitChangesNothing) {
  Rosters rosters;
  EXPECT_EQ(rosters.apply(roster(2, 1, {seat(1)})).error().code, ErrorCode::kCorrupt);
  ASSERT_TRUE(rosters.apply(roster(1, 0, {seat(1)})));
  EXPECT_FALSE(rosters.apply(roster(4, 3, {seat(2)})));
  std::vector<Seat> many;
  for (std::uint32_t peer = 1; peer <= Limits::stage_peers_max; ++peer) many.push_back(seat(peer));
  EXPECT_TRUE(rosters.apply(roster(2, 0, many)));
  EXPECT_FALSE(rosters.apply(roster(3, 2, {seat(5000)})));
  EXPECT_EQ(rosters.serving(StageId{1}).size(), many.size());
  ASSERT_TRUE(rosters.apply(roster(1, 0, {seat(1, 2)}, {}, 2)));
  EXPECT_FALSE(rosters.apply(roster(1, 0, {seat(1, 3)}, {}, 3))) << "it has two stages' lists";
  wire::Seal seal = seal_by({{1, 1}});
  EXPECT_FALSE(rosters.name_members(seal)) << "of before";
}

}  // namespace
}  // namespace swarmline
