// When a leg of a hop counts as late.
#include "pipeline/stage/microbatches/hop_clock.h"

#include <gtest/gtest.h>

#include "pipeline/protocol/knobs.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;
using Leg = HopClock::Leg;

constexpr Duration kTimeout = 60s;

class HopClockTest : public testing::Test {
 protected:
  static AttemptId attempt(std::uint32_t index, std::uint64_t step = 0) {
    return {{{PhaseKind::kTrain, step}, index}, Attempt{0}};
  }
  // `count` legs that took so long.
  void legs(PeerId peer, Leg leg, Duration took, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      clock_.begin(attempt(next_), peer, leg, now_);
      now_ += took;
      clock_.end(attempt(next_++), peer, now_);
    }
  }
  Duration patience(PeerId peer, Leg leg) {
    clock_.begin(attempt(next_), peer, leg, now_);
    const Duration patience = clock_.patience(attempt(next_));
    clock_.drop(attempt(next_++));
    return patience;
  }

  Duration timeout(PeerId peer, Leg leg) {
    clock_.begin(attempt(next_), peer, leg, now_);
    const Duration timeout = clock_.timeout(attempt(next_));
    clock_.drop(attempt(next_++));
    return timeout;
  }

  // So many attempts, from that index on, were given up and are not answered.
  void owe(PeerId peer, std::uint32_t first, std::uint32_t count, std::uint64_t step = 0) {
    for (std::uint32_t i = first; i < first + count; ++i) {
      clock_.begin(attempt(i, step), peer, Leg::kForward, now_);
      clock_.supersede(attempt(i, step));
    }
  }
  bool may_pass(PeerId peer, std::uint64_t step = 0) {
    clock_.begin(attempt(next_, step), peer, Leg::kForward, now_);
    const bool may = clock_.may_pass(attempt(next_, step), Version{step});
    clock_.drop(attempt(next_++, step));
    return may;
  }

  HopClock clock_{kTimeout};
  Instant now_{};
  std::uint32_t next_ = 1000;
  const PeerId a_{1}, b_{2};
};

TEST_F(HopClockTest, WaitsForTheTimeoutUntilAPeerIsKnown) {
  legs(a_, Leg::kForward, 100ms, HopClock::kSamplesMin - 1);
  EXPECT_EQ(patience(a_, Leg::kForward), kTimeout);
  legs(a_, Leg::kForward, 100ms, 1);
  EXPECT_LT(patience(a_, Leg::kForward), kTimeout);
  EXPECT_EQ(patience(a_, Leg::kBackward), kTimeout) << "the way back takes its own time";
  EXPECT_EQ(patience(b_, Leg::kForward), kTimeout) << "each peer is judged by itself";
  EXPECT_EQ(clock_.patience(attempt(9999)), kTimeout) << "an attempt on no leg";
}

TEST_F(HopClockTest, StaysBetweenTheLeastAndTheTimeout) {
  legs(a_, Leg::kForward, 1ms, 64);
  EXPECT_EQ(patience(a_, Leg::kForward), knobs().hop_late_min);
  legs(b_, Leg::kForward, 50s, HopClock::kSamplesMin);
  EXPECT_EQ(patience(b_, Leg::kForward), timeout(b_, Leg::kForward));
  HopClock hasty(knobs().hop_late_min / 2);
  for (std::uint32_t i = 0; i < 64; ++i) {
    hasty.begin(attempt(i), a_, Leg::kForward, now_);
    hasty.end(attempt(i), a_, now_ + 1ms);
  }
  hasty.begin(attempt(64), a_, Leg::kForward, now_);
  EXPECT_EQ(hasty.patience(attempt(64)), knobs().hop_late_min / 2);
}

// Over slow links legs wait for each other: what is sent again would make them longer still.
TEST_F(HopClockTest, WhereLegsTakeLongNoneIsGivenUpAtTheTimeout) {
  legs(a_, Leg::kForward, 100ms, 64);
  EXPECT_EQ(timeout(a_, Leg::kForward), kTimeout);
  legs(a_, Leg::kForward, 50s, 64);
  EXPECT_NEAR(to_seconds(timeout(b_, Leg::kForward)), HopClock::kUsual * 50, 1) << "of all peers";
  EXPECT_EQ(timeout(a_, Leg::kBackward), kTimeout) << "the way back takes its own time";
  EXPECT_EQ(clock_.timeout(attempt(9999)), kTimeout) << "an attempt on no leg";
  legs(a_, Leg::kForward, 1000s, 64);
  EXPECT_EQ(timeout(a_, Leg::kForward), 10 * kTimeout) << "not for ever";
  legs(a_, Leg::kForward, 100ms, 64);
  EXPECT_EQ(timeout(a_, Leg::kForward), kTimeout);
}

// A machine that is slow from the start is waited for as long as it takes.
TEST_F(HopClockTest, ASteadyPeerIsNeverLateHoweverSlow) {
  for (const Duration took : {Duration(20ms), Duration(200ms), Duration(2s), Duration(10s)}) {
    clock_ = HopClock(kTimeout);
    legs(a_, Leg::kForward, took, HopClock::kSamplesMin);
    for (int i = 0; i < 100; ++i) {
      EXPECT_GT(patience(a_, Leg::kForward), 2 * took);
      legs(a_, Leg::kForward, took, 1);
    }
  }
}

// Every step's first leg waits for a commit, as long as twenty others take.
TEST_F(HopClockTest, AWaitThatComesBackWithEveryStepIsNotLate) {
  const Duration calm = 100ms, wait = 2s;
  for (int step = 0; step < 4; ++step) {
    if (step > 0) EXPECT_GT(patience(a_, Leg::kForward), wait) << "step " << step;
    legs(a_, Leg::kForward, wait, 4);
    legs(a_, Leg::kForward, calm, 48);
  }
}

TEST_F(HopClockTest, WhatWasGivenUpCountsWhenItIsAnsweredLate) {
  legs(a_, Leg::kForward, 100ms, 64);
  const Duration before = patience(a_, Leg::kForward);
  ASSERT_LT(before, 1s);
  const AttemptId late = attempt(next_++);
  clock_.begin(late, a_, Leg::kForward, now_);
  clock_.supersede(late);
  now_ += 1s;
  EXPECT_EQ(patience(a_, Leg::kForward), before) << "not answered yet";
  clock_.end(late, a_, now_);
  EXPECT_GT(patience(a_, Leg::kForward), 2s) << "as slow once more is not late";
  clock_.end(late, a_, now_ + 50s);
  EXPECT_LT(patience(a_, Leg::kForward), 20s) << "an answer counts once";
}

// Its timer is late, and so would be every peer; their answers wait to be read.
TEST_F(HopClockTest, WhoStoodStillItselfFindsNobodyLate) {
  legs(a_, Leg::kForward, 100ms, 64);
  clock_.begin(attempt(next_), a_, Leg::kForward, now_);
  EXPECT_FALSE(clock_.is_late(attempt(next_), knobs().hop_late_min - 1ms, 0ms));
  EXPECT_TRUE(clock_.is_late(attempt(next_), 2s, 0ms));
  EXPECT_FALSE(clock_.is_late(attempt(next_), 2s, knobs().overslept_min));
}

TEST_F(HopClockTest, AnAnswerOfAnotherPeerIsNone) {
  owe(a_, 0, knobs().hop_owed_max);
  clock_.end(attempt(0), b_, now_ + 1s);
  EXPECT_FALSE(may_pass(a_)) << "the first is still owed";
}

TEST_F(HopClockTest, APeerThatOwesAnswersIsNotPassedByAgain) {
  legs(a_, Leg::kForward, 100ms, 1);
  legs(b_, Leg::kForward, 100ms, 1);
  owe(a_, 0, knobs().hop_owed_max - 1);
  EXPECT_TRUE(may_pass(a_));
  owe(a_, 500, 1);
  EXPECT_FALSE(may_pass(a_));
  EXPECT_TRUE(may_pass(b_));
  clock_.end(attempt(500), a_, now_ + 1s);
  EXPECT_TRUE(may_pass(a_));
}

// A commit may reach the sender first.
TEST_F(HopClockTest, WhoHasNotBegunWithAPhaseIsNotPassedBy) {
  legs(a_, Leg::kForward, 100ms, 64);
  EXPECT_TRUE(may_pass(a_, 0));
  EXPECT_FALSE(may_pass(a_, 1));
  clock_.begin(attempt(0, 1), a_, Leg::kForward, now_);
  clock_.end(attempt(0, 1), a_, now_ + 100ms);
  EXPECT_TRUE(may_pass(a_, 1));
  EXPECT_FALSE(may_pass(b_, 1));
  EXPECT_FALSE(clock_.may_pass(attempt(77, 1), Version{1})) << "nobody is at it";
}

// With a delay a step's version is there before the step is.
TEST_F(HopClockTest, WhoHasThePhasesVersionWaitsForNoCommit) {
  clock_.on_stepped(a_, Version{4});
  EXPECT_TRUE(may_pass(a_, 4));
  EXPECT_FALSE(may_pass(a_, 5));
  EXPECT_FALSE(may_pass(b_, 4));
  clock_.on_stepped(a_, Version{3});
  EXPECT_TRUE(may_pass(a_, 4)) << "an answer that came late";
  clock_.forget(a_);
  EXPECT_FALSE(may_pass(a_, 4));
}

// Three ways in which an answer never comes.
TEST_F(HopClockTest, WhatIsNeverAnsweredIsNotOwedForEver) {
  legs(a_, Leg::kForward, 100ms, HopClock::kSamplesMin);
  owe(a_, 0, knobs().hop_owed_max);
  EXPECT_FALSE(may_pass(a_));
  clock_.on_link_lost(a_);
  EXPECT_TRUE(may_pass(a_));

  owe(a_, 0, knobs().hop_owed_max);
  clock_.forget(a_);
  EXPECT_FALSE(may_pass(a_)) << "a stranger";
  legs(a_, Leg::kForward, 100ms, HopClock::kSamplesMin);
  EXPECT_TRUE(may_pass(a_));

  const Duration before = patience(a_, Leg::kForward);
  owe(a_, 0, knobs().hop_owed_max, 3);
  clock_.on_over({PhaseKind::kTrain, 2}, now_ + 5s);
  EXPECT_FALSE(may_pass(a_));
  clock_.on_over({PhaseKind::kTrain, 3}, now_ + 5s);
  EXPECT_TRUE(may_pass(a_));
  EXPECT_GT(patience(a_, Leg::kForward), before) << "it took at least so long";
}

// The leg of an attempt that nobody gave up says nothing when its step ends.
TEST_F(HopClockTest, AStepsEndTeachesNothingOfWhatRuns) {
  legs(a_, Leg::kForward, 100ms, 64);
  const Duration before = patience(a_, Leg::kForward);
  clock_.begin(attempt(0, 7), a_, Leg::kForward, now_);
  clock_.on_over({PhaseKind::kTrain, 7}, now_ + 50s);
  EXPECT_EQ(patience(a_, Leg::kForward), before);
}

}  // namespace
}  // namespace swarmline
