#include "pipeline/ledger/ledger.h"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/limits.h"
#include "tests/harness/all_marks_hit.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

[[maybe_unused]] const auto* const kAllMarks = expect_all_marks("ledger.");

constexpr Phase kStep{PhaseKind::kTrain, 7};
constexpr Phase kEval{PhaseKind::kEval, 7};
constexpr StageId kFirst{0};
constexpr StageId kLast{1};
constexpr Seat kA{PeerId(1), kFirst, Incarnation(1)};
constexpr Seat kB{PeerId(2), kFirst, Incarnation(1)};
constexpr Seat kX{PeerId(3), kLast, Incarnation(1)};
constexpr Seat kY{PeerId(4), kLast, Incarnation(1)};
constexpr Attempt kZero{0};
constexpr Attempt kResent{(std::uint64_t{1} << 32) | 5};
constexpr Attempt kResentAgain{(std::uint64_t{1} << 32) | 6};

// Two stages, 4 microbatches, all leased to kA.
class LedgerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ledger_.open(kStep, Version(7), 4, 2);
    ASSERT_EQ(ledger_.lease(kStep, kA, 4).size(), 1U);
  }
  void TearDown() override { ledger_.check_invariants(); }

  void report_all(StageId stage, Seat seat) {
    for (std::uint32_t i = 0; i < 4; ++i) {
      ASSERT_EQ(ledger_.report(kStep, stage, i, seat, kZero), Verdict::kAccepted);
    }
  }
  void reduce(StageId stage) {
    ledger_.begin_close(kStep, stage);
    ledger_.mark_reduced(kStep, stage);
  }

  Ledger ledger_;
};

TEST_F(LedgerTest, FreshLeasesAreConsecutiveRangesOfAttemptZeroWithAllStages) {
  Ledger ledger;
  ledger.open(kStep, Version(7), 5, 2);
  EXPECT_EQ(ledger.lease(kStep, kA, 2), (std::vector<Lease>{{kStep, 0, 2, kZero, {true, true}}}));
  EXPECT_EQ(ledger.leasable(kStep), 3U);
  EXPECT_EQ(ledger.lease(kStep, kB, 9), (std::vector<Lease>{{kStep, 2, 3, kZero, {true, true}}}));
  EXPECT_TRUE(ledger.lease(kStep, kA, 1).empty());
  EXPECT_TRUE(ledger.lease(kStep, kA, 0).empty());
}

// Another ledger had the phase open: what its peers hold is entered, the first one counts, and what
// nobody has is leased under attempts that no other term made.
TEST(Ledger, CollectsWhatAnEarlierTermLeftBehind) {
  Ledger ledger;
  ledger.begin_term(Term{3});
  ledger.open(kStep, Version(7), 3, 2);
  ledger.had_been_leased(kStep);
  EXPECT_EQ(ledger.collect(kStep, kFirst, 0, kA), Verdict::kAccepted);
  EXPECT_EQ(ledger.collect(kStep, kFirst, 0, kA), Verdict::kDuplicate);
  EXPECT_EQ(ledger.collect(kStep, kFirst, 0, kB), Verdict::kRefused);
  EXPECT_EQ(ledger.collect(kStep, kLast, 0, kA), Verdict::kRefused) << "not of that stage";
  EXPECT_EQ(ledger.collect(kStep, kLast, 3, kX), Verdict::kRefused) << "no such index";
  EXPECT_EQ(ledger.collect(kStep, kLast, 0, kX), Verdict::kAccepted);
  EXPECT_EQ(ledger.collect(kStep, kLast, 1, kX), Verdict::kAccepted);
  EXPECT_EQ(ledger.leasable(kStep), 2U);
  const std::vector<Lease> leases = ledger.lease(kStep, kA, 8);
  ASSERT_EQ(leases.size(), 2U);
  EXPECT_EQ(leases[0].first, 1U);
  EXPECT_EQ(leases[0].stages, (StageMask{true, false}));
  EXPECT_EQ(leases[1].first, 2U);
  EXPECT_EQ(leases[1].stages, (StageMask{true, true}));
  for (const Lease& lease : leases) EXPECT_EQ(lease.attempt.value >> 47, 2U);
  // What was under way before and ends now counts, unless it has been claimed.
  EXPECT_EQ(ledger.report(kStep, kFirst, 1, kB, kZero), Verdict::kAccepted);
  EXPECT_TRUE(ledger.claim(kStep, kFirst, 2, kA, leases[1].attempt));
  EXPECT_EQ(ledger.report(kStep, kFirst, 2, kB, kZero), Verdict::kRefused);
  ledger.check_invariants();
}

TEST_F(LedgerTest, FirstOwnerWins) {
  EXPECT_EQ(ledger_.report(kStep, kLast, 0, kX, kZero), Verdict::kAccepted);
  EXPECT_EQ(ledger_.report(kStep, kLast, 0, kX, kZero), Verdict::kDuplicate);
  EXPECT_EQ(ledger_.report(kStep, kLast, 0, kY, kZero), Verdict::kRefused);
  EXPECT_EQ(ledger_.owner(kStep, kLast, 0), kX);
  EXPECT_EQ(ledger_.owner(kStep, kFirst, 0), std::nullopt);
}

TEST_F(LedgerTest, ReportsThatDoNotFitAreRefused) {
  EXPECT_EQ(ledger_.report(Phase{PhaseKind::kTrain, 8}, kLast, 0, kX, kZero), Verdict::kRefused);
  EXPECT_EQ(ledger_.report(kStep, kLast, 4, kX, kZero), Verdict::kRefused);
  EXPECT_EQ(ledger_.report(kStep, StageId(2), 0, kX, kZero), Verdict::kRefused);
  EXPECT_EQ(ledger_.report(kStep, kFirst, 0, kX, kZero),
            Verdict::kRefused);  // seat of another stage
  EXPECT_EQ(ledger_.owned(kStep, kLast), 0U);
}

// The ledger before granted it: were it refused, nobody would have the cell, and nobody lease it.
TEST_F(LedgerTest, AReportOutlivesItsClaimWhileTheCellIsFree) {
  {
    const MarkExpected outlived("ledger.report_outlived_its_claim");
    EXPECT_EQ(ledger_.report(kStep, kLast, 0, kX, kResent), Verdict::kAccepted);
  }
  EXPECT_EQ(ledger_.owner(kStep, kLast, 0), kX);
  EXPECT_FALSE(ledger_.claim(kStep, kLast, 0, kY, kResentAgain));
  EXPECT_TRUE(ledger_.claim(kStep, kLast, 1, kY, kResentAgain));
  EXPECT_EQ(ledger_.report(kStep, kLast, 1, kX, kResent), Verdict::kRefused);
}

TEST_F(LedgerTest, NobodyOwnsWhatWasNeverLeased) {
  Ledger ledger;
  ledger.open(kStep, Version(7), 2, 2);
  EXPECT_EQ(ledger.report(kStep, kLast, 0, kX, kZero), Verdict::kRefused);
  EXPECT_FALSE(ledger.claim(kStep, kLast, 0, kX, kResent));
}

TEST_F(LedgerTest, ClaimBlocksReportsAndDoesNotCountForClosing) {
  EXPECT_TRUE(ledger_.claim(kStep, kLast, 0, kX, kResent));
  EXPECT_TRUE(ledger_.claim(kStep, kLast, 0, kX, kResent));
  EXPECT_FALSE(ledger_.claim(kStep, kLast, 0, kX, kResentAgain));
  EXPECT_FALSE(ledger_.claim(kStep, kLast, 0, kY, kResent));
  EXPECT_EQ(ledger_.report(kStep, kLast, 0, kY, kZero), Verdict::kRefused);
  EXPECT_EQ(ledger_.report(kStep, kLast, 0, kX, kZero), Verdict::kRefused);
  EXPECT_EQ(ledger_.owned(kStep, kLast), 0U);
  EXPECT_EQ(ledger_.report(kStep, kLast, 0, kX, kResent), Verdict::kAccepted);
  EXPECT_FALSE(ledger_.claim(kStep, kLast, 0, kY, kResentAgain));
}

TEST_F(LedgerTest, ReleasedClaimIsLeasedAgainToTheStagesThatMiss) {
  ASSERT_TRUE(ledger_.claim(kStep, kLast, 2, kX, kResent));
  ledger_.release_claim(kStep, kLast, 2, kY, kResent);  // not kY's to give
  EXPECT_EQ(ledger_.leasable(kStep), 0U);
  ledger_.release_claim(kStep, kLast, 2, kX, kResent);
  const auto leases = ledger_.lease(kStep, kB, 4);
  ASSERT_EQ(leases.size(), 1U);
  EXPECT_EQ(leases[0].first, 2U);
  EXPECT_EQ(leases[0].count, 1U);
  EXPECT_EQ(leases[0].stages, (StageMask{false, true}));
  EXPECT_NE(leases[0].attempt, kZero);
}

TEST_F(LedgerTest, LostSeatLeavesItsContributionsMissing) {
  report_all(kFirst, kA);
  ledger_.report(kStep, kLast, 0, kX, kZero);
  ledger_.report(kStep, kLast, 1, kY, kZero);
  ledger_.report(kStep, kLast, 2, kX, kZero);
  ledger_.report(kStep, kLast, 3, kX, kZero);
  EXPECT_EQ(ledger_.seat_lost(kX), (std::vector<PhaseStage>{{kStep, kLast}}));
  EXPECT_EQ(ledger_.report(kStep, kLast, 0, kX, kZero), Verdict::kRefused);  // fenced
  EXPECT_FALSE(ledger_.claim(kStep, kLast, 0, kX, kResent));
  const auto leases = ledger_.lease(kStep, kB, 4);
  ASSERT_EQ(leases.size(), 2U);
  EXPECT_EQ(leases[0].first, 0U);
  EXPECT_EQ(leases[0].count, 1U);
  EXPECT_EQ(leases[1].first, 2U);
  EXPECT_EQ(leases[1].count, 2U);
  EXPECT_NE(leases[0].attempt, leases[1].attempt);
  for (const Lease& lease : leases) {
    EXPECT_EQ(lease.stages, (StageMask{false, true}));
    for (std::uint32_t i = lease.first; i < lease.first + lease.count; ++i) {
      ASSERT_TRUE(ledger_.claim(kStep, kLast, i, kY, lease.attempt));
      ASSERT_EQ(ledger_.report(kStep, kLast, i, kY, lease.attempt), Verdict::kAccepted);
    }
  }
  EXPECT_TRUE(ledger_.complete(kStep));
}

TEST_F(LedgerTest, ALaterIncarnationOfALostPeerIsWelcome) {
  ledger_.seat_lost(kX);
  const Seat again{kX.peer, kLast, Incarnation(2)};
  EXPECT_EQ(ledger_.report(kStep, kLast, 0, kX, kZero), Verdict::kRefused);
  EXPECT_EQ(ledger_.report(kStep, kLast, 0, again, kZero), Verdict::kAccepted);
  EXPECT_TRUE(ledger_.seat_lost(kX).empty());  // known already: nothing of the new seat is touched
  EXPECT_EQ(ledger_.owner(kStep, kLast, 0), again);
}

TEST_F(LedgerTest, ClaimOfALostSeatEnds) {
  ASSERT_TRUE(ledger_.claim(kStep, kLast, 1, kX, kResent));
  EXPECT_FALSE(ledger_.claim(kStep, kLast, 1, kY, kResentAgain));
  ledger_.seat_lost(kX);
  EXPECT_TRUE(ledger_.claim(kStep, kLast, 1, kY, kResentAgain));
}

TEST_F(LedgerTest, ClaimOfALostSeatIsMissingSinceOthersWereTurnedAway) {
  ASSERT_TRUE(ledger_.claim(kStep, kLast, 1, kX, kResent));
  ledger_.seat_lost(kX);
  EXPECT_EQ(ledger_.leasable(kStep), 1U);
}

TEST_F(LedgerTest, IndicesOfALostSourceAreLeasedAgainWhereNobodyOwnsThem) {
  ledger_.report(kStep, kLast, 0, kX, kZero);
  ledger_.report(kStep, kFirst, 1, kA, kZero);
  ledger_.seat_lost(kA);
  const auto leases = ledger_.lease(kStep, kB, 4);
  ASSERT_EQ(leases.size(), 2U);
  EXPECT_EQ(leases[0].first, 0U);
  EXPECT_EQ(leases[0].count, 1U);
  EXPECT_EQ(leases[0].stages, (StageMask{true, false}));
  EXPECT_EQ(leases[1].first, 1U);
  EXPECT_EQ(leases[1].count, 3U);
  EXPECT_EQ(leases[1].stages, (StageMask{true, true}));
}

// Index 0 runs on: attempt 0 from kA misses only stage 0 when kX's share is issued again through
// kB. Then kA dies too.
TEST_F(LedgerTest, TheFirstSourceStaysResponsibleAfterAReissueThroughAnother) {
  ledger_.report(kStep, kLast, 0, kX, kZero);
  ledger_.seat_lost(kX);
  ASSERT_EQ(ledger_.lease(kStep, kB, 1).at(0).stages, (StageMask{false, true}));
  ledger_.seat_lost(kA);
  EXPECT_EQ(ledger_.lease(kStep, kB, 1).at(0).stages, (StageMask{true, true}));
}

TEST_F(LedgerTest, ExpiredLeasesSpareOwnersAndClaims) {
  ledger_.report(kStep, kLast, 0, kX, kZero);
  ASSERT_TRUE(ledger_.claim(kStep, kLast, 1, kX, kResent));
  for (std::uint32_t i = 0; i < 2; ++i) ledger_.expire(kStep, i);
  const auto leases = ledger_.lease(kStep, kB, 4);
  ASSERT_EQ(leases.size(), 1U);
  EXPECT_EQ(leases[0].count, 2U);
  EXPECT_EQ(leases[0].stages, (StageMask{true, false}));
}

TEST_F(LedgerTest, KnowsWhoWasLastLeasedWhatIsStillOut) {
  EXPECT_EQ(ledger_.source(kStep, 0), kA);
  ledger_.expire(kStep, 0);
  ASSERT_EQ(ledger_.lease(kStep, kB, 1).size(), 1U);
  EXPECT_EQ(ledger_.source(kStep, 0), kB);
  ledger_.report(kStep, kFirst, 1, kA, kZero);
  EXPECT_EQ(ledger_.source(kStep, 1), kA) << "one stage lacks it";
  ledger_.report(kStep, kLast, 1, kX, kZero);
  EXPECT_EQ(ledger_.source(kStep, 1), std::nullopt);
  const Phase fresh{PhaseKind::kTrain, 1};
  ledger_.open(fresh, Version{0}, 4, 2);
  EXPECT_EQ(ledger_.source(fresh, 0), std::nullopt) << "nobody was leased it";
}

TEST_F(LedgerTest, ClosesReducesAndCommits) {
  report_all(kFirst, kA);
  EXPECT_TRUE(ledger_.stage_complete(kStep, kFirst));
  EXPECT_FALSE(ledger_.complete(kStep));
  report_all(kLast, kX);
  reduce(kFirst);
  reduce(kLast);
  EXPECT_EQ(ledger_.stage_state(kStep, kLast), StageState::kReduced);
  ledger_.commit(kStep);
  EXPECT_FALSE(ledger_.is_open(kStep));
  EXPECT_EQ(ledger_.report(kStep, kLast, 0, kX, kZero), Verdict::kRefused);
  EXPECT_TRUE(ledger_.lease(kStep, kA, 4).empty());
}

TEST_F(LedgerTest, LosingAnOwnerReopensAClosingStage) {
  report_all(kFirst, kA);
  ledger_.begin_close(kStep, kFirst);
  EXPECT_EQ(ledger_.report(kStep, kFirst, 0, kA, kZero), Verdict::kDuplicate);
  ledger_.seat_lost(kA);
  EXPECT_EQ(ledger_.stage_state(kStep, kFirst), StageState::kOpen);
  EXPECT_EQ(ledger_.owned(kStep, kFirst), 0U);
}

// A member dies after reduce, before commit: it is not a lost owner.
TEST_F(LedgerTest, AReducedStageKeepsItsContributionsWhenAnOwnerDies) {
  report_all(kFirst, kA);
  report_all(kLast, kX);
  reduce(kLast);
  EXPECT_TRUE(ledger_.seat_lost(kX).empty());
  EXPECT_TRUE(ledger_.stage_complete(kStep, kLast));
  EXPECT_EQ(ledger_.leasable(kStep), 0U);
  reduce(kFirst);
  ledger_.commit(kStep);
}

TEST_F(LedgerTest, WhenNoHolderOfTheResultLivesTheDeadOwnersSharesAreMissing) {
  ledger_.report(kStep, kLast, 0, kY, kZero);
  for (std::uint32_t i = 1; i < 4; ++i) ledger_.report(kStep, kLast, i, kX, kZero);
  reduce(kLast);
  ledger_.seat_lost(kX);
  ledger_.reduction_lost(kStep, kLast);
  EXPECT_EQ(ledger_.stage_state(kStep, kLast), StageState::kOpen);
  EXPECT_EQ(ledger_.owned(kStep, kLast), 1U);
  EXPECT_EQ(ledger_.lease(kStep, kB, 4).at(0).first, 1U);
}

// A late add is in the sum, unseen by the ledger: the member is released as owner and the step
// reopens.
TEST_F(LedgerTest, ReleasingAnOwnerReopensOnlyThatStage) {
  report_all(kFirst, kA);
  report_all(kLast, kX);
  ledger_.begin_close(kStep, kFirst);
  ledger_.begin_close(kStep, kLast);
  ledger_.release_owner(kStep, kLast, kX);
  EXPECT_EQ(ledger_.stage_state(kStep, kLast), StageState::kOpen);
  EXPECT_EQ(ledger_.stage_state(kStep, kFirst), StageState::kClosing);
  EXPECT_EQ(ledger_.lease(kStep, kA, 9).at(0).stages, (StageMask{false, true}));
  EXPECT_TRUE(ledger_.claim(kStep, kLast, 0, kX, kResent));  // not fenced
  ledger_.reopen(kStep, kFirst);
  EXPECT_EQ(ledger_.stage_state(kStep, kFirst), StageState::kOpen);
}

// Of a run that outlives any number of peers.
TEST_F(LedgerTest, APeerThatIsOverIsForgottenOnceNoOpenPhaseNamesIt) {
  ledger_.report(kStep, kLast, 0, kX, kZero);
  ledger_.seat_lost(kX);
  EXPECT_EQ(ledger_.fences(), 1U);
  EXPECT_FALSE(ledger_.forget(kX.peer));
  EXPECT_EQ(ledger_.fences(), 1U);
  ledger_.abandon(kStep);
  EXPECT_TRUE(ledger_.forget(kX.peer));
  EXPECT_EQ(ledger_.fences(), 0U);
}

TEST_F(LedgerTest, OwnershipMergesRangesAndListsOwnersOnce) {
  ledger_.report(kStep, kLast, 3, kX, kZero);
  ledger_.report(kStep, kLast, 0, kX, kZero);
  ledger_.report(kStep, kLast, 1, kX, kZero);
  ledger_.report(kStep, kLast, 2, kY, kZero);
  const std::map<PeerId, std::vector<IndexRange>> owned = {{kX.peer, {{0, 2}, {3, 1}}},
                                                           {kY.peer, {{2, 1}}}};
  EXPECT_EQ(ledger_.ownership(kStep, kLast), owned);
  EXPECT_FALSE(ledger_.ownership(kStep, kFirst).contains(kX.peer));
  EXPECT_EQ(ledger_.owners(kStep, kLast), (std::vector<Seat>{kX, kY}));
}

TEST_F(LedgerTest, LossIsRecordedOncePerOwnerAndAddedInIndexOrder) {
  for (std::uint32_t i = 0; i < 4; ++i) ledger_.report(kStep, kLast, i, i < 2 ? kX : kY, kZero);
  // In index order 1 is absorbed by 1e16 and the sum is 2; any order that adds 1 after the
  // cancellation gives 3.
  ledger_.record_loss(kStep, 3, 2.0);
  ledger_.record_loss(kStep, 0, 1.0);
  ledger_.record_loss(kStep, 2, -1e16);
  ledger_.record_loss(kStep, 1, 1e16);
  ledger_.record_loss(kStep, 0, 100.0);
  EXPECT_EQ(ledger_.loss_sum(kStep), 2.0);
  ledger_.seat_lost(kY);
  EXPECT_EQ(ledger_.loss_sum(kStep), 1e16);
  ASSERT_TRUE(ledger_.claim(kStep, kLast, 2, kX, kResent));
  ASSERT_EQ(ledger_.report(kStep, kLast, 2, kX, kResent), Verdict::kAccepted);
  ledger_.record_loss(kStep, 2, -1e16);
  EXPECT_EQ(ledger_.loss_sum(kStep), 0.0);
}

TEST_F(LedgerTest, NonFiniteLossesAreKept) {
  ledger_.report(kStep, kLast, 0, kX, kZero);
  ledger_.record_loss(kStep, 0, std::numeric_limits<double>::quiet_NaN());
  EXPECT_NE(ledger_.loss_sum(kStep), ledger_.loss_sum(kStep));
}

TEST_F(LedgerTest, FailuresCountDistinctPeers) {
  EXPECT_EQ(ledger_.report_failure(kStep, 2, PeerId(3)), 1U);
  EXPECT_EQ(ledger_.report_failure(kStep, 2, PeerId(3)), 1U);
  EXPECT_EQ(ledger_.report_failure(kStep, 1, PeerId(3)), 1U);
  EXPECT_EQ(ledger_.report_failure(kStep, 2, PeerId(4)), 2U);
  EXPECT_EQ(ledger_.report_failure(kStep, 2, PeerId(5)), 3U);
  for (std::uint32_t peer = 6; peer < 60; ++peer) ledger_.report_failure(kStep, 2, PeerId(peer));
  EXPECT_EQ(ledger_.report_failure(kStep, 2, PeerId(60)), Ledger::kFailuresKept);
  EXPECT_EQ(ledger_.report_failure(kStep, 4, PeerId(3)), 0U);
  EXPECT_EQ(ledger_.report_failure(kEval, 0, PeerId(3)), 0U);
}

TEST_F(LedgerTest, WhatFailedAtAPeerIsLeasedToAnother) {
  ledger_.report_failure(kStep, 2, kB.peer);
  ledger_.expire(kStep, 2);
  ledger_.expire(kStep, 3);
  const MarkExpected elsewhere("ledger.not_where_it_failed");
  const std::vector<Lease> leases = ledger_.lease(kStep, kB, 4);
  ASSERT_EQ(leases.size(), 1U);
  EXPECT_EQ(leases[0].first, 3U);
  EXPECT_EQ(leases[0].count, 1U);
  EXPECT_EQ(ledger_.lease(kStep, kA, 4).at(0).first, 2U);
}

TEST_F(LedgerTest, AnEvaluationTracksOnlyTheLastStage) {
  ledger_.open(kEval, Version(7), 2, 3);
  const StageId last(2);
  const Seat judge{PeerId(9), last, Incarnation(1)};
  EXPECT_EQ(ledger_.lease(kEval, kA, 2).at(0).stages, (StageMask{false, false, true}));
  EXPECT_EQ(ledger_.report(kEval, kFirst, 0, kA, kZero), Verdict::kRefused);
  EXPECT_EQ(ledger_.report(kEval, last, 0, judge, kZero), Verdict::kAccepted);
  ledger_.record_loss(kEval, 0, 1.5);
  ledger_.seat_lost(kA);
  const auto again = ledger_.lease(kEval, kB, 2);
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].first, 1U);
  EXPECT_EQ(again[0].stages, (StageMask{false, false, true}));
  ASSERT_TRUE(ledger_.claim(kEval, last, 1, judge, again[0].attempt));
  ASSERT_EQ(ledger_.report(kEval, last, 1, judge, again[0].attempt), Verdict::kAccepted);
  ledger_.record_loss(kEval, 1, 2.0);
  EXPECT_TRUE(ledger_.complete(kEval));
  EXPECT_EQ(ledger_.loss_sum(kEval), 3.5);
  ledger_.commit(kEval);
  EXPECT_EQ(ledger_.open_phases(), (std::vector<Phase>{kStep}));
}

TEST_F(LedgerTest, PhasesAreIndependent) {
  const Phase next{PhaseKind::kTrain, 8};
  ledger_.open(next, Version(7), 4, 2);
  ASSERT_EQ(ledger_.lease(next, kB, 4).size(), 1U);
  report_all(kLast, kX);
  EXPECT_EQ(ledger_.owned(next, kLast), 0U);
  ledger_.report(next, kLast, 0, kX, kZero);
  EXPECT_EQ(ledger_.seat_lost(kX), (std::vector<PhaseStage>{{kStep, kLast}, {next, kLast}}));
  ledger_.abandon(next);
  EXPECT_FALSE(ledger_.is_open(next));
}

TEST_F(LedgerTest, AnEmptyPhaseIsCompleteAtOnce) {
  Ledger ledger;
  ledger.open(kEval, Version(7), 0, 2);
  EXPECT_TRUE(ledger.complete(kEval));
  EXPECT_TRUE(ledger.lease(kEval, kA, 4).empty());
  EXPECT_EQ(ledger.loss_sum(kEval), 0.0);
  ledger.commit(kEval);
}

using LedgerDeathTest = LedgerTest;

TEST_F(LedgerDeathTest, CallsOutOfOrderAbort) {
  EXPECT_DEATH(ledger_.begin_close(kStep, kLast), "step 8");
  EXPECT_DEATH(ledger_.commit(kStep), "not ready to commit");
  EXPECT_DEATH(ledger_.mark_reduced(kStep, kLast), "step 8");
  EXPECT_DEATH(ledger_.open(kStep, Version(7), 1, 1), "open already");
  EXPECT_DEATH(ledger_.record_loss(kStep, 0, 1.0), "");
  EXPECT_DEATH(ledger_.claim(kStep, kLast, 0, kX, kZero), "");
  EXPECT_DEATH(ledger_.commit(kEval), "not open");
}

TEST_F(LedgerDeathTest, OpenPhasesAreBounded) {
  for (std::uint64_t step = 8; step < 8 + Ledger::kOpenPhasesMax - 1; ++step) {
    ledger_.open({PhaseKind::kTrain, step}, Version(7), 1, 1);
  }
  EXPECT_DEATH(ledger_.open(kEval, Version(7), 1, 1), "");
}

}  // namespace
}  // namespace swarmline
