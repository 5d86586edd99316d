// Which key somebody takes for a run's.
#include "node/admission/run_trust.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "node/admission/invites.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

constexpr double kNow = 1'790'000'000;

class Trust : public ::testing::Test {
 protected:
  static std::string said(const Identity& from, const Identity& into, double now = kNow) {
    return make_handover("run", from, into, now, 3600).text;
  }
  bool signs(const Identity& key, double now = kNow) const {
    const auto signers = trust_.signers(now);
    return std::ranges::find(signers, key.public_key()) != signers.end();
  }

  const Identity first_ = Identity::make(), second_ = Identity::make(), third_ = Identity::make();
  RunTrust trust_{"run", first_.hash()};
};

TEST_F(Trust, IsOfTheJoinStringsKeyAlone) {
  EXPECT_TRUE(trust_.signers(kNow).empty()) << "its public half has not been seen";
  EXPECT_FALSE(trust_.follow(second_.public_key(), "", kNow));
  EXPECT_TRUE(trust_.follow(first_.public_key(), "", kNow));
  EXPECT_TRUE(signs(first_));
  EXPECT_FALSE(signs(second_));
}

TEST_F(Trust, FollowsTheKeyThatTheOneBeforeNames) {
  const MarkExpected rule("trust.follows_the_runs_key");
  EXPECT_TRUE(trust_.follow(second_.public_key(), said(first_, second_), kNow));
  EXPECT_EQ(trust_.key(), second_.hash());
  EXPECT_TRUE(signs(second_));
  EXPECT_TRUE(signs(first_)) << "for the time of the handover";
  EXPECT_FALSE(signs(first_, kNow + 3700));
  EXPECT_TRUE(signs(second_, kNow + 3700));
  EXPECT_TRUE(
      trust_.follow(third_.public_key(), said(first_, second_) + said(second_, third_), kNow));
  EXPECT_EQ(trust_.key(), third_.hash());
}

TEST_F(Trust, FollowsOverAKeyThatItNeverMet) {
  EXPECT_TRUE(
      trust_.follow(third_.public_key(), said(first_, second_) + said(second_, third_), kNow));
  EXPECT_TRUE(signs(second_) && signs(first_));
}

TEST_F(Trust, ALeakedKeySaysNothingMoreToWhoHasFollowed) {
  ASSERT_TRUE(trust_.follow(second_.public_key(), said(first_, second_), kNow));
  EXPECT_FALSE(trust_.follow(third_.public_key(), said(first_, third_), kNow + 10));
  trust_.learn(said(first_, third_), kNow + 10);
  EXPECT_EQ(trust_.key(), second_.hash());
  EXPECT_FALSE(trust_.follow(first_.public_key(), said(first_, second_), kNow + 10))
      << "nor is it the run's itself";
}

TEST_F(Trust, KnowsTheKeysThatWereTheRunsWhileTheirHandoversHold) {
  EXPECT_FALSE(trust_.was(first_.hash(), kNow)) << "it is";
  ASSERT_TRUE(trust_.follow(second_.public_key(), said(first_, second_), kNow));
  EXPECT_TRUE(trust_.was(first_.hash(), kNow));
  EXPECT_FALSE(trust_.was(second_.hash(), kNow));
  EXPECT_FALSE(trust_.was(third_.hash(), kNow));
  EXPECT_FALSE(trust_.was(first_.hash(), kNow + 4000));
}

TEST_F(Trust, WhatIsOverLeadsNowhere) {
  EXPECT_FALSE(trust_.follow(second_.public_key(), said(first_, second_), kNow + 3700));
  EXPECT_FALSE(trust_.vouches(second_.hash(), said(first_, second_), kNow + 3700));
  EXPECT_EQ(trust_.key(), first_.hash());
}

TEST_F(Trust, OnlyTheRunItselfTellsOfKeysBefore) {
  ASSERT_TRUE(trust_.follow(first_.public_key(), "", kNow));
  trust_.learn(said(second_, first_), kNow);
  EXPECT_FALSE(signs(second_)) << "anybody can say that his key was before";
  trust_.hear_of_former(said(second_, third_), kNow);
  EXPECT_FALSE(signs(second_)) << "that leads to another run";
  trust_.hear_of_former(said(second_, first_), kNow);
  EXPECT_TRUE(signs(second_));
  EXPECT_EQ(trust_.key(), first_.hash());
}

}  // namespace
}  // namespace swarmline
