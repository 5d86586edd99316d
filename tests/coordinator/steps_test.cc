// Open phases, leases, reports and rounds, each without what is above it.
#include <gtest/gtest.h>

#include "pipeline/coordinator/steps/report_intake.h"
#include "pipeline/protocol/knobs.h"
#include "tests/coordinator/parts_bench.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

const Phase kStep0{PhaseKind::kTrain, 0};

class Steps : public ::testing::Test {
 protected:
  PartsBench bench;
  const Seat a = bench.seated(0), b = bench.seated(1);
};

// ---- OpenPhases ---------------------------------------------------------------------------------

TEST_F(Steps, APhaseIsAnnouncedAndANewcomerIsGreetedWithIt) {
  bench.open_step(0);
  const auto told = bench.told<wire::OpenPhase>(a, MessageKind::kOpenPhase);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].microbatches(), 4U);
  EXPECT_EQ(told[0].opening(), first_phase_epoch(Term{1}).value);
  const Seat newcomer = bench.seated(1);
  bench.phases.greet(newcomer);
  EXPECT_EQ(bench.count(newcomer, MessageKind::kOpenPhase), 1U);
  EXPECT_EQ(bench.count(newcomer, MessageKind::kReopen), 0U);
  bench.phases.check_invariants();
}

TEST_F(Steps, ASealedStepIsReopenedUnderAHigherEpochAndSaidOnce) {
  bench.open_step(0);
  bench.complete_step(0);
  bench.phases.seal(0);
  EXPECT_TRUE(bench.phases.is_sealed(kStep0));
  const MarkExpected reopened("open_phases.reopened");
  EXPECT_TRUE(bench.phases.reopen({StageId{1}}));
  EXPECT_FALSE(bench.phases.reopen({StageId{1}})) << "they know";
  const auto told = bench.told<wire::Reopen>(a, MessageKind::kReopen);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].opening(), first_phase_epoch(Term{1}).value + 1);
  const Seat newcomer = bench.seated(1);
  bench.phases.greet(newcomer);
  EXPECT_TRUE(bench.told<wire::OpenPhase>(newcomer, MessageKind::kOpenPhase)[0].sealed());
  EXPECT_EQ(bench.count(newcomer, MessageKind::kReopen), 1U);
}

// ---- Leases -------------------------------------------------------------------------------------

TEST_F(Steps, ASourceGetsWhatItWantsAndNoMore) {
  bench.open_step(0);
  bench.leases.want(a, 3, 0);
  EXPECT_TRUE(bench.leases.is_due());
  bench.leases.pump();
  EXPECT_FALSE(bench.leases.is_due());
  EXPECT_EQ(bench.told<wire::Leases>(a, MessageKind::kLeases)[0].leases_size(), 3);
  bench.leases.want(a, 2, 0);  // an older word
  bench.leases.pump();
  EXPECT_EQ(bench.count(a, MessageKind::kLeases), 1U);
  bench.leases.want(a, 9, 0);
  bench.leases.pump();
  EXPECT_EQ(bench.told<wire::Leases>(a, MessageKind::kLeases)[1].leases_size(), 1);
}

TEST_F(Steps, WhatALostSourceHadIsLeasedToAnother) {
  const Seat other = bench.seated(0);
  bench.open_step(0);
  bench.leases.want(a, 4, 0);
  bench.leases.pump();
  const SeatLoss loss = bench.lost(a);
  bench.leases.on_seat_lost(loss);
  bench.phases.on_seat_lost(loss);
  bench.leases.want(other, 9, 0);
  bench.leases.pump();
  EXPECT_EQ(bench.told<wire::Leases>(other, MessageKind::kLeases)[0].leases_size(), 4);
}

TEST_F(Steps, WhatIsOutIsLeasedAgainToSomebodyElse) {
  bench.open_step(0);
  bench.leases.want(a, 9, 0);
  bench.leases.pump();
  EXPECT_FALSE(bench.leases.lease_again(kStep0, 0)) << "nobody else is there";
  const Seat other = bench.seated(0);
  bench.leases.want(other, 1, 0);
  const MarkExpected again("leases.leased_again");
  EXPECT_TRUE(bench.leases.lease_again(kStep0, 0));
  EXPECT_FALSE(bench.leases.lease_again(kStep0, 1)) << "it has no room";
  bench.leases.send_again();
  EXPECT_EQ(bench.told<wire::Leases>(other, MessageKind::kLeases)[0].leases_size(), 1);
  bench.leases.check_invariants();
}

// ---- ReportIntake -------------------------------------------------------------------------------

class Reports : public Steps {
 protected:
  static wire::Report report(const Seat& seat, std::uint32_t index, double loss = 0) {
    wire::Report report;
    *report.mutable_seat() = to_wire(seat);
    *report.mutable_phase() = to_wire(kStep0);
    wire::Contribution* contribution = report.add_contributions();
    contribution->set_index(index);
    contribution->set_loss_sum(loss);
    return report;
  }
  wire::ComputeFailed failed(const Seat& seat, std::uint32_t index) {
    wire::ComputeFailed failed;
    *failed.mutable_seat() = to_wire(seat);
    *failed.mutable_id() = to_wire(AttemptId{{kStep0, index}, Attempt{}});
    failed.set_what("nan");
    return failed;
  }
  ReportIntake intake{bench.shape,   bench.ledger, bench.leases,
                      bench.members, bench.outbox, bench.rulings};
};

TEST_F(Reports, AContributionCountsOnceAndItsLossWithIt) {
  const Seat mate = bench.seated(1);
  bench.open_step(0);
  bench.leases.want(a, 4, 0);
  bench.leases.pump();
  intake.on_report(report(b, 2, 1.5));
  EXPECT_TRUE(intake.take_progress());
  EXPECT_EQ(bench.ledger.owner(kStep0, StageId{1}, 2), b);
  EXPECT_EQ(bench.ledger.loss_sum(kStep0), 1.5);
  const MarkExpected refused("report_intake.refused");
  intake.on_report(report(mate, 2, 7));
  EXPECT_EQ(bench.told<wire::ReportAck>(mate, MessageKind::kReportAck)[0].refused_size(), 1);
  EXPECT_EQ(bench.ledger.loss_sum(kStep0), 1.5);
}

TEST_F(Reports, AMicrobatchThatFailsWhereverItIsTriedEndsTheRun) {
  const Seat second = bench.seated(1);
  bench.open_step(0);
  const MarkExpected elsewhere("report_intake.failed_elsewhere");
  intake.on_compute_failed(failed(b, 1));
  EXPECT_FALSE(bench.rulings.any()) << "another peer of the stage may do better";
  const MarkExpected poison("report_intake.poison");
  intake.on_compute_failed(failed(second, 1));
  const auto sentence = bench.rulings.take_failure();
  ASSERT_TRUE(sentence.has_value());
  EXPECT_NE(sentence->find("step 1 microbatch 1 failed on 2 peers"), std::string::npos);
  EXPECT_NE(sentence->find("nan"), std::string::npos);
}

TEST_F(Reports, AClaimOfAnothersSeatIsRefusedAndOnesOwnMayBeGivenUp) {
  bench.open_step(0);
  bench.leases.want(a, 4, 0);
  bench.leases.pump();
  wire::Claim claim;
  *claim.mutable_seat() = to_wire(a);
  *claim.mutable_id() = to_wire(AttemptId{{kStep0, 0}, resend_attempt(a.peer, 1)});
  std::vector<bool> granted;
  const auto respond = [&](const Result<Frame>& frame) {
    granted.push_back(parse<wire::ClaimReply>(*frame)->granted());
  };
  intake.on_claim(b, make_frame(MessageKind::kClaim, claim), respond);
  intake.on_claim(a, make_frame(MessageKind::kClaim, claim), respond);
  bench.outbox.flush();
  EXPECT_EQ(granted, (std::vector{false, true}));
  // Given up, it is leased to those who were turned away while it stood.
  wire::ReleaseClaim release;
  *release.mutable_seat() = to_wire(a);
  *release.mutable_id() = claim.id();
  const MarkExpected released("report_intake.claim_released");
  intake.on_release_claim(release);
  EXPECT_EQ(bench.ledger.leasable(kStep0), 1U);
}

// ---- CommitRound --------------------------------------------------------------------------------

class Rounds : public Steps {
 protected:
  Rounds() {
    bench.open_step(0);
    bench.complete_step(0);
    round.begin(0, Term{1});
  }
  wire::Reduced reduced(const Seat& seat, std::uint64_t digest) const {
    return bench.reduced(seat, digest);
  }
  static wire::RoundBroken broken_between(const Seat& says, const Seat& beyond) {
    wire::RoundBroken broken;
    *broken.mutable_seat() = to_wire(says);
    *broken.mutable_beyond() = to_wire(beyond);
    *broken.mutable_phase() = to_wire(kStep0);
    broken.set_group(1);
    return broken;
  }
  const Seat mate = bench.seated(1);
  CommitRound& round = bench.round;
};

TEST_F(Rounds, MembersAreToldWhatTheyOwnAndTheStepIsDoneWhenAllHaveTheSameBits) {
  const auto seal = bench.told<wire::Seal>(b, MessageKind::kSeal);
  ASSERT_EQ(seal.size(), 1U);
  EXPECT_EQ(seal[0].owned(0).count(), 4U);
  EXPECT_EQ(bench.told<wire::Seal>(mate, MessageKind::kSeal)[0].owned_size(), 0);
  EXPECT_FALSE(round.mend());
  round.on_reduced(reduced(a, 1));
  round.on_reduced(reduced(b, 2));
  EXPECT_FALSE(round.mend());
  round.on_reduced(reduced(mate, 2));
  EXPECT_TRUE(round.mend());
  round.check_invariants();
  round.end();
  EXPECT_FALSE(round.is_active());
  round.check_invariants();
}

TEST_F(Rounds, ALossBeforeAnyResultReopensTheStepAndAveragesAgain) {
  const MarkExpected again("commit_round.averaged_again");
  const SeatLoss loss = bench.lost(b);
  bench.phases.on_seat_lost(loss);
  round.on_seat_lost(loss);
  ASSERT_TRUE(round.is_due());
  EXPECT_FALSE(round.mend());
  EXPECT_TRUE(bench.phases.is_reopened());
  EXPECT_TRUE(bench.leases.is_due()) << "what it owned is to be computed again";
  for (const Lease& lease : bench.ledger.lease(kStep0, a, 4))
    for (std::uint32_t i = 0; i < lease.count; ++i) {
      bench.ledger.claim(kStep0, StageId{1}, lease.first + i, mate, lease.attempt);
      bench.ledger.report(kStep0, StageId{1}, lease.first + i, mate, lease.attempt);
    }
  round.wake();
  EXPECT_FALSE(round.mend());
  EXPECT_FALSE(bench.phases.is_reopened());
  const auto seals = bench.told<wire::Seal>(mate, MessageKind::kSeal);
  ASSERT_EQ(seals.size(), 2U);
  EXPECT_EQ(seals[1].groups(0).attempt(), 1U);
  EXPECT_EQ(seals[1].owned(0).count(), 4U);
  EXPECT_EQ(bench.count(a, MessageKind::kSeal), 1U) << "its group goes on";
}

TEST_F(Rounds, AResultOutlivesWhoAveragedItAndOthersFetchIt) {
  const MarkExpected late("commit_round.late_fetch");
  round.on_reduced(reduced(b, 2));
  EXPECT_EQ(bench.ledger.stage_state(kStep0, StageId{1}), StageState::kReduced);
  const Seat newcomer = bench.seated(1);
  round.add_late(newcomer);
  const auto fetch = bench.told<wire::FetchReduced>(newcomer, MessageKind::kFetchReduced);
  ASSERT_EQ(fetch.size(), 1U);
  EXPECT_EQ(from_wire(fetch[0].holders(0).seat()), b);
  EXPECT_FALSE(round.has_result(newcomer));
  round.on_reduced(reduced(newcomer, 2));
  EXPECT_TRUE(round.has_result(newcomer));
}

TEST_F(Rounds, WhoAveragedToOtherBitsThanItsMatesFetchesTheirs) {
  const Seat third = bench.seated(1);
  round.add_late(third);
  round.on_reduced(reduced(b, 2));
  round.on_reduced(reduced(third, 2));
  const MarkExpected different("commit_round.different_gradient");
  round.on_reduced(reduced(mate, 3));
  EXPECT_FALSE(round.has_result(mate));
  const auto fetch = bench.told<wire::FetchReduced>(mate, MessageKind::kFetchReduced);
  ASSERT_EQ(fetch.size(), 1U);
  EXPECT_EQ(fetch[0].digest(), 2U);
}

TEST_F(Rounds, WhereAShadowHasTheResultItIsNamedBesideItsHost) {
  const Seat shadow{a.peer, StageId{1}, a.incarnation};
  const Seat newcomer = bench.seated(1);
  round.add_late(shadow);
  round.add_late(newcomer);
  round.on_reduced(reduced(shadow, 0));
  const auto fetch = bench.told<wire::FetchReduced>(newcomer, MessageKind::kFetchReduced);
  ASSERT_EQ(fetch.size(), 1U);
  EXPECT_EQ(from_wire(fetch[0].to()), newcomer);
  EXPECT_EQ(from_wire(fetch[0].holders(0).seat()), a);
  EXPECT_EQ(from_wire(fetch[0].holders(0).shadow()), shadow);
}

TEST_F(Rounds, AMemberWhoseSumsAreNotWhatItReportedIsLostInTheEnd) {
  wire::SealMismatch mismatch;
  *mismatch.mutable_seat() = to_wire(mate);
  mismatch.mutable_phase()->set_step(0);
  const MarkExpected mark("commit_round.seal_mismatch");
  for (std::uint32_t times = 1; times < knobs().mismatches_max; ++times) {
    round.on_seal_mismatch(mate, mismatch);
    EXPECT_FALSE(bench.rulings.any());
    round.mend();
  }
  round.on_seal_mismatch(mate, mismatch);
  const auto losses = bench.rulings.take_losses();
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].seat, mate);
}

TEST_F(Rounds, TwoThatCantReachEachOtherCantAverageTogether) {
  wire::RoundBroken broken = broken_between(b, mate);
  const MarkExpected given_up("commit_round.link_given_up");
  for (std::uint32_t times = 0; times < knobs().broken_links_max; ++times) {
    broken.set_attempt(round.board().attempt(GroupId{1}).value);
    round.on_round_broken(broken);
    bench.clock.run_for(knobs().round_retry_delay + 1ms);
    round.mend();
  }
  const auto losses = bench.rulings.take_losses();
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].seat, mate) << "the one that came later";
}

// Nobody is waited for that serves with the parameters alone, whichever of the two is at fault.
TEST_F(Rounds, WhoServesEarlyIsLetGoInThePlaceOfTheLastThatHoldsTheStage) {
  bench.round_patience = 60s;
  for (const Seat& early : {mate, b}) {
    const Seat& holder = early == mate ? b : mate;
    bench.members.become(early.peer, MemberState::kEarly);
    bench.members.become(holder.peer, MemberState::kReady);
    wire::RoundBroken broken = broken_between(b, mate);
    const MarkExpected given_up("commit_round.link_given_up");
    for (std::uint32_t times = 0; times <= knobs().broken_links_max; ++times) {
      if (bench.rulings.any()) break;
      broken.set_attempt(round.board().attempt(GroupId{1}).value);
      round.on_round_broken(broken);
      bench.clock.run_for(knobs().round_retry_delay + 1ms);
      round.mend();
    }
    const auto losses = bench.rulings.take_losses();
    ASSERT_EQ(losses.size(), 1U);
    EXPECT_EQ(losses[0].seat, early);
  }
}

// Its process is gone, and only the coordinator has not heard of it.
TEST_F(Rounds, WhereNobodyListensAnyMoreIsTheOneLetGo) {
  wire::RoundBroken broken = broken_between(mate, b);
  broken.set_nobody_there(true);
  const MarkExpected nobody_there("commit_round.nobody_there");
  for (std::uint32_t times = 0; times < knobs().broken_links_max; ++times) {
    EXPECT_FALSE(bench.rulings.any());
    broken.set_attempt(round.board().attempt(GroupId{1}).value);
    round.on_round_broken(broken);
    bench.clock.run_for(knobs().round_retry_delay + 1ms);
    round.mend();
  }
  const auto losses = bench.rulings.take_losses();
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].seat, b) << "not the one that came later";
}

// Out of descriptors, say: whoever is beyond, it is that end.
TEST_F(Rounds, WhoSaysThatItReachesNobodyIsTheOneLetGo) {
  wire::RoundBroken broken = broken_between(b, mate);
  broken.set_own_end(true);
  const MarkExpected reaches_nobody("commit_round.reaches_nobody");
  for (std::uint32_t times = 0; times < knobs().broken_links_max; ++times) {
    EXPECT_FALSE(bench.rulings.any());
    broken.set_attempt(round.board().attempt(GroupId{1}).value);
    round.on_round_broken(broken);
    bench.clock.run_for(knobs().round_retry_delay + 1ms);
    round.mend();
  }
  const auto losses = bench.rulings.take_losses();
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].seat, b);
}

TEST_F(Rounds, WhoDoesNotEndItsAveragingInTimeIsLostWhereOthersHaveTheResult) {
  round.on_reduced(reduced(b, 2));
  const MarkExpected deadline("commit_round.deadline");
  const Duration bound = knobs().reduce_deadline + bench.detector.told_within();
  bench.detector.begin(bench.alarms.now() + bound);
  bench.clock.run_for(bound + 1ms);
  const auto losses = bench.rulings.take_losses();
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].seat, mate);
  EXPECT_GT(bench.settled, 0U);
}

// However long it takes: what is averaged may be large, and the links slow.
TEST_F(Rounds, AnAveragingThatGetsOnIsWaitedFor) {
  const MarkExpected gets_on("commit_round.gets_on");
  for (std::uint64_t bytes = 1; bytes < 20; ++bytes) {
    bench.clock.run_for(knobs().reduce_deadline / 2);
    bench.detector.moved(mate, bytes, bench.alarms.now());
  }
  EXPECT_FALSE(bench.rulings.any());
  EXPECT_EQ(round.board().attempt(GroupId{1}).value, 0U) << "it was not begun again";
}

// [All were idle for long, since another stage was waited for; heartbeats say later that they
// work.]
TEST_F(Steps, WhoHadNothingToDoBeforeAStepWasSealedDidNotStandStill) {
  const MarkExpected gets_on("commit_round.gets_on"), deadline("commit_round.deadline");
  const Seat mate = bench.seated(1);
  bench.clock.run_for(2 * knobs().reduce_deadline);
  bench.open_step(0);
  bench.complete_step(0);
  bench.round.begin(0, Term{1});
  bench.round.on_reduced(bench.reduced(b, 2));
  bench.clock.run_for(knobs().reduce_deadline + 1ms);
  EXPECT_TRUE(bench.rulings.take_losses().empty());
  bench.clock.run_for(bench.detector.told_within());
  const auto losses = bench.rulings.take_losses();
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].seat, mate);
}

// Its sum may have to wait for a job of the device, which moves no bytes.
TEST_F(Rounds, AMemberWhoseDeviceWorksIsWaitedFor) {
  const MarkExpected gets_on("commit_round.gets_on");
  round.on_reduced(reduced(b, 2));
  for (std::uint64_t jobs = 1; jobs < 20; ++jobs) {
    bench.clock.run_for(knobs().reduce_deadline / 2);
    bench.detector.heartbeat(mate, jobs / 2, 1, bench.alarms.now());
  }
  EXPECT_TRUE(bench.rulings.take_losses().empty());
}

// Links that have no end in common: it is not the fault of any of these peers.
TEST_F(Rounds, WhereManyLinksBreakNobodyIsLetGoForAWhile) {
  const MarkExpected many("commit_round.many_links_broken");
  const Seat third = bench.seated(1), fourth = bench.seated(1);
  const auto breaks = [&](const Seat& one, const Seat& other) {
    wire::RoundBroken broken = broken_between(one, other);
    broken.set_attempt(round.board().attempt(GroupId{1}).value);
    round.on_round_broken(broken);
  };
  const Instant first = bench.alarms.now();
  while (bench.alarms.now() - first < knobs().mesh_patience) {
    EXPECT_FALSE(bench.rulings.any());
    breaks(b, mate);
    breaks(third, fourth);
    bench.clock.run_for(knobs().round_retry_max + 1ms);
    round.mend();
  }
  breaks(b, mate);
  bench.clock.run_for(knobs().round_retry_max + 1ms);
  EXPECT_EQ(bench.rulings.take_losses().size(), 1U) << "two links that are gone look the same";
}

TEST_F(Rounds, ARunWhoseAveragingNeverEndsEndsWithASentence) {
  const Instant began = bench.alarms.now();
  const Duration outlasted = from_seconds(bench.options.config.net.outlast_seconds);
  while (bench.alarms.now() - began < outlasted) {
    EXPECT_FALSE(bench.rulings.take_failure().has_value());
    bench.clock.run_for(bench.detector.told_within());
    if (round.is_due()) round.mend();
  }
  bench.clock.run_for(knobs().reduce_deadline);  // then it looks again
  const auto sentence = bench.rulings.take_failure();
  ASSERT_TRUE(sentence.has_value());
  EXPECT_NE(sentence->find("averaging step 1 did not end"), std::string::npos);
}

}  // namespace
}  // namespace swarmline
