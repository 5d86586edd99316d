// What a lost seat may have added unseen, and contributions that change hands.
#include <gtest/gtest.h>

#include "pipeline/ledger/ledger.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

constexpr Phase kStep{PhaseKind::kTrain, 7};
constexpr Attempt kZero{0};
constexpr Attempt kResent{(std::uint64_t{1} << 32) | 5};

// Three stages; all is leased to a seat of the first.
class LedgerDoubtTest : public ::testing::Test {
 protected:
  static constexpr StageId kTop{2};
  static constexpr Seat kLow{PeerId(1), StageId{0}, Incarnation(1)};
  static constexpr Seat kMiddle{PeerId(2), StageId{1}, Incarnation(1)};
  static constexpr Seat kGone{PeerId(3), kTop, Incarnation(1)};
  static constexpr Seat kMate{PeerId(4), kTop, Incarnation(1)};
  void SetUp() override {
    ledger_.open(kStep, Version(7), 2, 3);
    ASSERT_EQ(ledger_.lease(kStep, kLow, 2).size(), 1U);
  }
  void TearDown() override { ledger_.check_invariants(); }
  Ledger ledger_;
};

TEST_F(LedgerDoubtTest, WhatCameThroughAMateThatLivesIsNotMissing) {
  const MarkExpected over("ledger.doubt_over");
  ledger_.report(kStep, StageId{1}, 0, kMiddle, kZero, kMate.peer);
  ledger_.seat_lost(kGone);
  ledger_.report(kStep, StageId{1}, 1, kMiddle, kZero, kMate.peer);
  EXPECT_EQ(ledger_.leasable(kStep), 0U) << "before the loss, and after it";
  ledger_.seat_lost(kMate);
  EXPECT_EQ(ledger_.leasable(kStep), 2U) << "until that one is lost, too";
}

TEST_F(LedgerDoubtTest, WhatCameThroughTheLostSeatIsMissing) {
  ledger_.report(kStep, StageId{1}, 0, kMiddle, kZero, kGone.peer);
  ledger_.seat_lost(kGone);
  ledger_.report(kStep, StageId{1}, 1, kMiddle, kZero, kGone.peer);
  EXPECT_EQ(ledger_.leasable(kStep), 2U);
}

// The lowest stage may report before the one above it.
TEST_F(LedgerDoubtTest, TheStageJustBelowIsWaitedFor) {
  ledger_.seat_lost(kGone);
  ledger_.report(kStep, StageId{0}, 0, kLow, kZero, kMiddle.peer);
  EXPECT_EQ(ledger_.leasable(kStep), 0U);
  ledger_.report(kStep, StageId{1}, 0, kMiddle, kZero, kMate.peer);
  EXPECT_EQ(ledger_.leasable(kStep), 0U);
  ledger_.report(kStep, StageId{0}, 1, kLow, kZero, kMiddle.peer);
  ledger_.report(kStep, StageId{1}, 1, kMiddle, kZero, kGone.peer);
  EXPECT_EQ(ledger_.leasable(kStep), 1U);
}

// A later try may have been wanted just below alone: whoever it came through added nothing.
TEST_F(LedgerDoubtTest, ALaterTrySaysNothing) {
  ledger_.seat_lost(kGone);
  ASSERT_TRUE(ledger_.claim(kStep, StageId{1}, 0, kMiddle, kResent));
  ledger_.report(kStep, StageId{1}, 0, kMiddle, kResent, kMate.peer);
  EXPECT_EQ(ledger_.leasable(kStep), 1U);
}

// What both had of the step, and what lost sources started, is where it was.
TEST_F(LedgerDoubtTest, ContributionsChangeHands) {
  ledger_.report(kStep, kTop, 0, kGone, kZero);
  ledger_.report(kStep, kTop, 1, kMate, kZero);
  ledger_.hand_over(kStep, kTop, kGone, kMate);
  EXPECT_EQ(ledger_.owner(kStep, kTop, 0), kMate);
  EXPECT_EQ(ledger_.owned(kStep, kTop), 2U);
  EXPECT_TRUE(ledger_.seat_lost(kGone).empty());
  EXPECT_EQ(ledger_.owner(kStep, kTop, 0), kMate);
  EXPECT_EQ(ledger_.seat_lost(kMate), (std::vector<PhaseStage>{{kStep, kTop}}));
}

// What its source has added and handed over has been everywhere above: who has not reported it yet
// will, or is doubted. What has not come back, or was leased again, is missing with its source.
TEST_F(LedgerDoubtTest, WhatItsSourceHandedOverIsWaitedFor) {
  const Seat taker{PeerId(5), StageId{0}, Incarnation(1)};
  const MarkExpected waited("ledger.handed_over_with_its_source");
  ledger_.report(kStep, StageId{0}, 0, kLow, kZero, kMiddle.peer);
  ledger_.hand_over(kStep, StageId{0}, kLow, taker);
  ledger_.seat_lost(kLow);
  EXPECT_EQ(ledger_.leasable(kStep), 1U) << "index 1, which had not come back";
  EXPECT_EQ(ledger_.report(kStep, StageId{1}, 0, kMiddle, kZero, kMate.peer), Verdict::kAccepted);
  ledger_.seat_lost(kMate);
  EXPECT_EQ(ledger_.leasable(kStep), 2U) << "who had it at the top is lost";
}

TEST_F(LedgerDoubtTest, WhatWasLeasedAgainIsMissingWithItsSource) {
  const Seat taker{PeerId(5), StageId{0}, Incarnation(1)};
  ledger_.report(kStep, StageId{0}, 0, kLow, kZero, kMiddle.peer);
  ledger_.expire(kStep, 0);
  ASSERT_EQ(ledger_.lease(kStep, kLow, 1).size(), 1U);
  ledger_.hand_over(kStep, StageId{0}, kLow, taker);
  ledger_.seat_lost(kLow);
  EXPECT_EQ(ledger_.leasable(kStep), 2U);
}

// The seat had added and sent its gradient on; its report died with it. Nobody's source is lost, so
// only the stage below tells that the try is over.
TEST(Ledger, AnUnseenContributionOfALostSeatIsMissingOnceAStageBelowHasTheIndex) {
  Ledger ledger;
  const Phase phase{PhaseKind::kTrain, 0};
  const auto seat = [](std::uint32_t peer, std::uint16_t stage) {
    return Seat{PeerId{peer}, StageId{stage}, Incarnation{1}};
  };
  ledger.open(phase, Version{0}, 2, 3);
  ASSERT_EQ(ledger.lease(phase, seat(1, 0), 2).size(), 1U);
  EXPECT_EQ(ledger.report(phase, StageId{0}, 0, seat(1, 0), Attempt{0}), Verdict::kAccepted);
  ledger.seat_lost(seat(2, 1));
  EXPECT_EQ(ledger.leasable(phase), 1U) << "index 0 is owned below, index 1 may yet come";
  EXPECT_EQ(ledger.report(phase, StageId{2}, 1, seat(4, 2), Attempt{0}), Verdict::kAccepted);
  EXPECT_EQ(ledger.leasable(phase), 1U) << "a stage above tells nothing";
  EXPECT_EQ(ledger.report(phase, StageId{0}, 1, seat(1, 0), Attempt{0}), Verdict::kAccepted);
  EXPECT_EQ(ledger.leasable(phase), 2U);
  // Too much marked: a late first try is still taken, once.
  EXPECT_EQ(ledger.report(phase, StageId{1}, 1, seat(3, 1), Attempt{0}), Verdict::kAccepted);
  const auto leases = ledger.lease(phase, seat(1, 0), 2);
  ASSERT_EQ(leases.size(), 1U);
  EXPECT_EQ(leases[0].first, 0U);
  EXPECT_EQ(leases[0].stages, (StageMask{false, true, false}));
  ledger.check_invariants();
}

}  // namespace
}  // namespace swarmline
