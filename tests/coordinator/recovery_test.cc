// A coordinator that begins again: whom it waits for, and what follows from what they hold.
#include "pipeline/coordinator/run/recovery.h"

#include <gtest/gtest.h>

#include "pipeline/coordinator/run/resumption.h"
#include "pipeline/protocol/knobs.h"
#include "tests/coordinator/parts_bench.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

// ---- Recovery -----------------------------------------------------------------------------------

class Recover : public ::testing::Test {
 protected:
  Recover() {
    run.era = Era{1};
    run.started = 2;
    run.era_version = 4;
    run.era_updates_known = true;
    for (std::uint32_t peer = 1; peer <= 2; ++peer)
      run.seats.push_back(
          {.seat = seat_of(peer), .address = "host:" + std::to_string(peer), .state = "active"});
  }
  static Seat seat_of(std::uint32_t peer) {
    return {PeerId{peer}, StageId{static_cast<std::uint16_t>(peer - 1)}, Incarnation{1}};
  }
  static wire::Hello hello_of(std::uint32_t peer) {
    wire::Hello hello;
    hello.set_address("host:" + std::to_string(peer));
    hello.set_run_id("run");
    *hello.mutable_previous() = to_wire(seat_of(peer));
    hello.mutable_holdings()->set_era(1);
    hello.mutable_holdings()->set_version(4);
    return hello;
  }
  void resume(std::uint32_t peer) {
    FakeSession& fake = bench.peers[seat_of(peer)];
    bench.sessions.add(fake.session);
    recovery.resume(fake.session, hello_of(peer));
  }
  // As many more at the first stage, with the numbers that follow.
  void know_more(std::uint32_t peers) {
    for (std::uint32_t peer = 3; peer < 3 + peers; ++peer)
      run.seats.push_back({.seat = {PeerId{peer}, StageId{0}, Incarnation{1}},
                           .address = "host:" + std::to_string(peer),
                           .state = "active"});
  }
  void resume_at_first_stage(std::uint32_t peer) {
    const Seat seat = run.seats[peer - 1].seat;
    wire::Hello hello = hello_of(peer);
    *hello.mutable_previous() = to_wire(seat);
    bench.peers[seat] = FakeSession();
    bench.sessions.add(bench.peers[seat].session);
    recovery.resume(bench.peers[seat].session, hello);
  }
  void never_stopped() { bench.detector.begin(bench.alarms.now() + 1h); }

  PartsBench bench;
  JournaledRun run;
  Recovery& recovery = bench.recovery;
  Duration& patience = bench.recovery_patience;
};

// Nobody else holds what they hold: they are waited for as long as going back would take.
TEST_F(Recover, WaitsLongerForTheLastOnesOfAStage) {
  patience = 60s;
  recovery.begin(run, Term{2}, false);
  resume(1);
  const MarkExpected waits("recovery.waits_for_the_last_ones");
  bench.clock.run_for(from_seconds(bench.options.config.net.collect_seconds) + 1ms);
  EXPECT_FALSE(recovery.is_due());
  bench.clock.run_for(60s);
  EXPECT_TRUE(recovery.is_due());
  EXPECT_EQ(recovery.take_missing(), std::set<Seat>{seat_of(2)});
}

TEST_F(Recover, IsOverWhenEverySeatHasCome) {
  recovery.begin(run, Term{2}, false);
  EXPECT_TRUE(recovery.resumes(hello_of(1), "run"));
  EXPECT_FALSE(recovery.resumes(hello_of(1), "another run"));
  wire::Hello old = hello_of(1);
  old.mutable_holdings()->set_version(2);
  EXPECT_FALSE(recovery.resumes(old, "run")) << "it has missed too many commits";
  const MarkExpected resumed("recovery.peer_resumed");
  resume(1);
  EXPECT_FALSE(recovery.is_due());
  resume(2);
  ASSERT_TRUE(recovery.is_due());
  recovery.check_invariants();
  EXPECT_TRUE(recovery.take_missing().empty());
  const CollectedHoldings collected = recovery.take();
  EXPECT_EQ(collected.committed, 4U);
  EXPECT_EQ(collected.holdings.size(), 2U);
  EXPECT_FALSE(recovery.is_active());
}

TEST_F(Recover, WhoHasNotComeByTheDeadlineIsMissing) {
  recovery.begin(run, Term{2}, false);
  resume(1);
  never_stopped();
  const MarkExpected deadline("recovery.deadline");
  bench.clock.run_for(from_seconds(bench.options.config.net.collect_seconds) + 1ms);
  ASSERT_TRUE(recovery.is_due());
  const std::set<Seat> missing = recovery.take_missing();
  EXPECT_EQ(missing, std::set<Seat>{seat_of(2)});
  recovery.on_seat_lost({.seat = seat_of(2), .why = "lost"});
  EXPECT_EQ(recovery.take().holdings.size(), 1U);
}

// Every stage has somebody: the rest is not worth collect_seconds, where those are heard.
TEST_F(Recover, WhoHasNotComeWhileOthersAreHeardIsMissingSooner) {
  know_more(1);
  recovery.begin(run, Term{2}, false);
  never_stopped();
  for (const std::uint32_t peer : {1U, 2U}) resume(peer);
  const MarkExpected quiet("recovery.quiet");
  for (Duration time{}; time < bench.detector.silence_allowed() + 1s; time += 500ms) {
    bench.clock.run_for(500ms);
    bench.detector.heartbeat(seat_of(2), 0, 0, bench.clock.now());
  }
  EXPECT_TRUE(recovery.is_due());
}

// Seed 16729: a coordinator that was cut off as it collected took the quiet for others' absence.
TEST_F(Recover, WhereThoseThatCameAreNotHeardEitherTheQuietSaysNothing) {
  know_more(1);
  recovery.begin(run, Term{2}, false);
  never_stopped();
  for (const std::uint32_t peer : {1U, 2U}) {
    resume(peer);
    bench.detector.heartbeat(seat_of(peer), 0, 0, bench.clock.now());
  }
  const MarkExpected deaf("recovery.quiet_because_deaf"), anybody("recovery.waits_for_anybody");
  bench.clock.run_for(from_seconds(bench.options.config.net.collect_seconds) + 1s);
  EXPECT_FALSE(recovery.is_due());
}

TEST_F(Recover, WhereNobodyWasHeardTheyAreWaitedForLongerUntilSomebodyIs) {
  recovery.begin(run, Term{2}, true);
  never_stopped();
  bench.clock.run_for(from_seconds(bench.options.config.net.collect_seconds) + 1ms);
  EXPECT_FALSE(recovery.is_due());
  const MarkExpected somebody("recovery.heard_somebody");
  recovery.heard_somebody();
  resume(1);
  bench.clock.run_for(from_seconds(bench.options.config.net.collect_seconds) + 1ms);
  EXPECT_TRUE(recovery.is_due());
}

// All that was said meanwhile comes at once: a hello that its peer has given up on, and the next.
TEST_F(Recover, WhereItWasCutOffSomebodyMayComeAgainAMomentLater) {
  recovery.begin(run, Term{2}, true);
  resume(1);
  resume(2);
  EXPECT_FALSE(recovery.is_due());
  bench.clock.run_for(knobs().collect_calm - 1ms);
  bench.peers[seat_of(1)] = FakeSession();  // over another connection
  resume(1);
  bench.clock.run_for(2ms);
  EXPECT_FALSE(recovery.is_due());
  bench.clock.run_for(knobs().collect_calm);
  EXPECT_TRUE(recovery.is_due());
}

// Ten thousand hellos take longer to read than their peers take to dial.
TEST_F(Recover, WhileTheyStillComeNobodyIsGivenUp) {
  know_more(2);
  recovery.begin(run, Term{2}, false);
  resume(1);
  never_stopped();
  bench.clock.run_for(from_seconds(bench.options.config.net.collect_seconds) -
                      knobs().redial_time / 2);
  resume(2);
  const MarkExpected come("recovery.they_still_come");
  bench.clock.run_for(knobs().redial_time);
  EXPECT_FALSE(recovery.is_due()) << "past the deadline; one came just before it";
  resume_at_first_stage(3);
  bench.clock.run_for(knobs().redial_time - 1ms);
  EXPECT_FALSE(recovery.is_due());
  resume_at_first_stage(3);  // again: no progress
  bench.clock.run_for(knobs().redial_time);
  EXPECT_TRUE(recovery.is_due());
  EXPECT_EQ(recovery.take_missing(), std::set<Seat>{run.seats[3].seat});
}

TEST_F(Recover, HowLongTheyMayComeIsBounded) {
  know_more(200);
  recovery.begin(run, Term{2}, false);
  resume(1);
  resume(2);
  never_stopped();
  const Duration pause = knobs().redial_time / 2;
  const Duration bound = from_seconds(bench.options.config.net.peers_wait_seconds);
  std::uint32_t peer = 3;
  for (; !recovery.is_due() && peer < 200; ++peer) {
    resume_at_first_stage(peer);
    bench.clock.run_for(pause);
  }
  EXPECT_NEAR(to_seconds((peer - 3) * pause), to_seconds(bound), to_seconds(knobs().redial_time));
}

// Going back takes peers, too.
TEST_F(Recover, WhereNobodyComesAtAllSomebodyIsWaitedFor) {
  recovery.begin(run, Term{2}, false);
  const MarkExpected anybody("recovery.waits_for_anybody");
  bench.clock.run_for(from_seconds(bench.options.config.net.collect_seconds) + 1ms);
  bench.clock.run_for(600s);
  EXPECT_FALSE(recovery.is_due());
  recovery.heard_somebody();
  resume(1);
  bench.clock.run_for(from_seconds(bench.options.config.net.collect_seconds) - 1s);
  EXPECT_FALSE(recovery.is_due()) << "the others are waited for from then on";
  resume(2);
  EXPECT_TRUE(recovery.is_due());
}

TEST_F(Recover, WhereWhoeverCameHasGoneSomebodyIsWaitedFor) {
  patience = 55s;
  recovery.begin(run, Term{2}, false);
  never_stopped();
  recovery.heard_somebody();
  resume(1);
  ASSERT_TRUE(recovery.is_awaited_again(*bench.peers[seat_of(1)].session));
  const MarkExpected anybody("recovery.waits_for_anybody");
  bench.clock.run_for(from_seconds(bench.options.config.net.collect_seconds) + patience + 1s);
  EXPECT_FALSE(recovery.is_due());
}

// Seed 13393: a newcomer that builds its stage was taken for somebody whom it hears.
TEST_F(Recover, WhereNobodyIsHeardAnyMoreANewcomersSeatIsNobody) {
  patience = 55s;
  recovery.begin(run, Term{2}, false);
  never_stopped();
  recovery.heard_somebody();
  const Seat newcomer = bench.seated(0);
  bench.members.become(newcomer.peer, MemberState::kBuilding);
  bench.detector.watch(newcomer, bench.clock.now());
  bench.detector.heard(newcomer, bench.clock.now());
  const MarkExpected anybody("recovery.waits_for_anybody");
  bench.clock.run_for(from_seconds(bench.options.config.net.collect_seconds) + patience + 1s);
  EXPECT_FALSE(recovery.is_due());
}

TEST_F(Recover, WhereNobodyComesAtAllForTooLongTheRunGoesBack) {
  recovery.begin(run, Term{2}, false);
  never_stopped();
  bench.clock.run_for(2 * from_seconds(bench.options.config.net.outlast_seconds));
  EXPECT_TRUE(recovery.is_due());
  EXPECT_EQ(recovery.given_up(), 1U);
}

TEST_F(Recover, OneWhoseLinkBreaksAgainIsAwaitedAgain) {
  recovery.begin(run, Term{2}, false);
  resume(1);
  const MarkExpected again("recovery.awaited_again");
  EXPECT_TRUE(recovery.is_awaited_again(*bench.peers[seat_of(1)].session));
  EXPECT_FALSE(recovery.is_awaited_again(*bench.peers[seat_of(1)].session));
  resume(2);
  EXPECT_FALSE(recovery.is_due());
}

// Seed 6073: a coordinator that was cut off as it collected fenced all who had come.
TEST_F(Recover, OneThatFallsSilentIsAwaitedAgainAndKeepsItsSeat) {
  recovery.begin(run, Term{2}, false);
  resume(1);
  const SessionPtr session = bench.peers[seat_of(1)].session;
  const MarkExpected hung_up("recovery.hung_up");
  EXPECT_FALSE(recovery.hangs_up_on(seat_of(2))) << "it has not come";
  EXPECT_TRUE(recovery.hangs_up_on(seat_of(1)));
  EXPECT_FALSE(session->has_seat()) << "the end of that connection is nobody's loss";
  EXPECT_FALSE(recovery.hangs_up_on(seat_of(1)));
  EXPECT_TRUE(bench.detector.silent(bench.clock.now() + 600s).empty());
  EXPECT_TRUE(bench.members.is_current(seat_of(1)));
  EXPECT_TRUE(recovery.resumes(hello_of(1), "run"));
  resume(2);
  EXPECT_FALSE(recovery.is_due()) << "it is waited for";
}

TEST_F(Recover, WhatPeersSayMeanwhileWaitsInOrder) {
  std::vector<int> heard;
  const FakeSession one, gone;
  EXPECT_FALSE(recovery.hold(one.session, 1, [] {})) << "nothing is being collected";
  recovery.begin(run, Term{2}, false);
  EXPECT_TRUE(recovery.hold(one.session, 1, [&] { heard.push_back(1); }));
  EXPECT_TRUE(recovery.hold(gone.session, 1, [&] { heard.push_back(2); }));
  EXPECT_TRUE(recovery.hold(one.session, 1, [&] { heard.push_back(3); }));
  const MarkExpected enough("recovery.holds_enough");
  const FakeSession greedy;
  EXPECT_TRUE(
      recovery.hold(greedy.session, Limits::messages_held_bytes_max, [&] { heard.push_back(4); }));
  bench.flush();
  EXPECT_TRUE(greedy.channel->closed) << "it says it again";
  gone.session->closed = true;
  resume(1);
  resume(2);
  recovery.take_missing();
  for (auto& handle : recovery.take().held) handle();
  EXPECT_EQ(heard, (std::vector{1, 3}));
}

// ---- Resumption ---------------------------------------------------------------------------------

TEST_F(Recover, AcknowledgedContributionsCountBeforeReportedOnes) {
  bench.members = Membership({1, 2});
  const Seat a = bench.seated(0), b = bench.seated(1), mate = bench.seated(1);
  ReplicaAudit audit;
  Resumption resumption({.shape = bench.shape,
                         .members = bench.members,
                         .ledger = bench.ledger,
                         .phases = bench.phases,
                         .leases = bench.leases,
                         .audit = audit,
                         .outbox = bench.outbox,
                         .rulings = bench.rulings});
  CollectedHoldings collected;
  const Phase step{PhaseKind::kTrain, 4};
  const auto held = [&](const Seat& seat, std::uint64_t version) {
    wire::PhaseHoldings* phase = collected.holdings[seat].add_phases();
    *phase->mutable_phase() = to_wire(step);
    phase->set_version(version);
    return phase;
  };
  held(b, 4)->add_reported()->set_index(1);
  held(mate, 4)->add_acknowledged()->set_index(1);
  const MarkExpected other("resumption.other_version"), taken("resumption.phase_collected"),
      said_again("resumption.commit_said_again");
  collected.last_commit = CommitRecord{.step = 3, .version = 4, .skipped = true};
  collected.holdings[a].set_version(3);
  for (const Seat& seat : {b, mate}) collected.holdings[seat].set_version(4);
  held(a, 3)->add_acknowledged()->set_index(0);
  resumption.tell(collected);
  EXPECT_EQ(bench.count(b, MessageKind::kResume), 1U);
  EXPECT_EQ(bench.count(b, MessageKind::kCommit), 0U);
  EXPECT_EQ(bench.count(a, MessageKind::kCommit), 1U) << "it has not heard of the last one";
  const RunSequence::Opening opening{.phase = step, .version = Version{4}};
  bench.phases.open(opening, Term{2}, {});
  resumption.collect(opening, collected);
  EXPECT_EQ(bench.ledger.owner(step, StageId{1}, 1), mate);
  EXPECT_FALSE(bench.ledger.owner(step, StageId{0}, 0).has_value());
  const auto ack = bench.told<wire::ReportAck>(b, MessageKind::kReportAck);
  ASSERT_EQ(ack.size(), 1U);
  EXPECT_EQ(ack[0].refused(0), 1U);
  EXPECT_FALSE(bench.rulings.any());
  held(b, 4)->add_acknowledged()->set_index(1);
}

}  // namespace
}  // namespace swarmline
