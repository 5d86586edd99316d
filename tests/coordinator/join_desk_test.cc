#include "pipeline/coordinator/states/join_desk.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

constexpr StageId kStage{1};

Seat seat(std::uint32_t peer) {
  return {PeerId{peer}, kStage, Incarnation{1}};
}

TEST(JoinDesk, JoinersShareAStateAndLaterOnesWaitForTheNext) {
  JoinDesk desk;
  EXPECT_TRUE(desk.begin(kStage, 5, {seat(1), seat(2)}).empty()) << "nobody wants one";
  desk.want(seat(7));
  EXPECT_EQ(desk.begin(kStage, 5, {seat(1), seat(2)}), std::vector<Seat>{seat(7)});
  EXPECT_FALSE(desk.offer(kStage)) << "nobody has frozen it yet";
  EXPECT_TRUE(desk.frozen(seat(1), 5, 100, {"a"}));
  desk.want(seat(8));
  EXPECT_EQ(desk.begin(kStage, 5, {}), std::vector<Seat>{seat(8)}) << "the same version";
  desk.want(seat(9));
  EXPECT_TRUE(desk.begin(kStage, 6, {seat(1)}).empty()) << "others fetch the older one";
  const auto offer = desk.offer(kStage);
  ASSERT_TRUE(offer);
  EXPECT_EQ(offer->version, 5U);
  EXPECT_EQ(offer->holders, std::vector<Seat>{seat(1)});
  EXPECT_EQ(offer->followers, (std::vector<Seat>{seat(7), seat(8)}));
  desk.seated(seat(7));
  desk.lost(seat(8));
  EXPECT_EQ(desk.begin(kStage, 7, {seat(1)}), std::vector<Seat>{seat(9)});
}

TEST(JoinDesk, WhoHoldsUpOthersCanBeLetGo) {
  JoinDesk desk;
  desk.want(seat(7));
  desk.begin(kStage, 5, {seat(1)});
  EXPECT_TRUE(desk.holding_up(kStage).empty()) << "nobody waits";
  desk.want(seat(8));
  EXPECT_TRUE(desk.waits(seat(8)));
  EXPECT_FALSE(desk.waits(seat(7)));
  EXPECT_TRUE(desk.begin(kStage, 6, {seat(1)}).empty());
  ASSERT_EQ(desk.holding_up(kStage), std::vector<Seat>{seat(7)});
  desk.seated(seat(7));
  EXPECT_EQ(desk.begin(kStage, 6, {seat(1)}), std::vector<Seat>{seat(8)});
}

TEST(JoinDesk, OtherBytesAreNotOffered) {
  JoinDesk desk;
  desk.want(seat(7));
  desk.begin(kStage, 5, {seat(1), seat(2), seat(3)});
  EXPECT_TRUE(desk.frozen(seat(1), 5, 100, {"a"}));
  EXPECT_FALSE(desk.frozen(seat(2), 5, 100, {"b"}));
  EXPECT_FALSE(desk.frozen(seat(3), 4, 100, {"a"})) << "of another version";
  EXPECT_FALSE(desk.frozen(seat(4), 5, 100, {"a"})) << "nobody asked it";
  EXPECT_TRUE(desk.frozen(seat(3), 5, 100, {"a"}));
  EXPECT_EQ(desk.offer(kStage)->holders, (std::vector<Seat>{seat(1), seat(3)}));
}

TEST(JoinDesk, FollowersOfAStateThatIsGoneWaitForAnother) {
  JoinDesk desk;
  desk.want(seat(7));
  desk.begin(kStage, 5, {seat(1), seat(2)});
  EXPECT_TRUE(desk.frozen(seat(1), 5, 100, {"a"}));
  desk.lost(seat(1));
  EXPECT_TRUE(desk.follows(seat(7))) << "the second may still have it";
  desk.lost(seat(2));
  EXPECT_FALSE(desk.follows(seat(7)));
  EXPECT_EQ(desk.begin(kStage, 9, {seat(3)}), std::vector<Seat>{seat(7)});
}

TEST(JoinDesk, WhatEverybodyBeginsWithNeedsNoHolder) {
  JoinDesk desk;
  desk.want(seat(7));
  desk.begin(kStage, 0, {seat(1)});
  ASSERT_TRUE(desk.offer(kStage));
  EXPECT_EQ(desk.offer(kStage)->bytes, 0U);
}

}  // namespace
}  // namespace swarmline
