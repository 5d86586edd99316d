// Who drains, moves or is let go, and where newcomers serve, without a coordinator.
#include "pipeline/coordinator/members/relocation.h"

#include <gtest/gtest.h>

#include "tests/coordinator/states_bench.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

const Phase kStep0{PhaseKind::kTrain, 0};

class Relocating : public ::testing::Test {
 protected:
  // It asks to leave, and says that nothing is on its way any more.
  void leaves(const Seat& seat) {
    relocation.on_leave(seat);
    bench.members.at(seat.peer).in_flight = 0;
  }
  std::vector<SeatLoss> released() {
    relocation.release_drained();
    return bench.rulings.take_losses();
  }
  void measured(const Seat& seat, Duration busy) {
    bench.members.measured(seat, static_cast<std::uint64_t>(busy.count()), kPassesOfAMicrobatch);
  }
  void plan() {
    bench.balancer.seats_changed();
    relocation.plan();
  }

  StatesBench bench;
  Relocation& relocation = bench.relocation;
  const Seat a = bench.seated(0), b = bench.seated(1);
};

// ---- Newcomers ----------------------------------------------------------------------------------

TEST(Relocation, WhoKeptAStateServesThatStageAgainWhereItIsMissed) {
  CoordinatorOptions options = bench_options(2, 4);
  options.config.balance.moves = false;
  StatesBench bench(options);
  bench.seated(0);
  const Seat b = bench.seated(1);
  wire::Hello hello;
  hello.mutable_kept()->set_stage(1);
  hello.mutable_kept()->set_version(3);
  EXPECT_EQ(bench.relocation.place(hello, 3), std::nullopt) << "nobody is missing there";
  bench.lost(b);
  EXPECT_EQ(bench.relocation.place(hello, 3), StageId{1});
  EXPECT_EQ(bench.relocation.place(hello, 4), std::nullopt) << "its state is too old";
  hello.mutable_kept()->set_stage(2);
  EXPECT_EQ(bench.relocation.place(hello, 3), std::nullopt) << "there is no such stage";
}

TEST_F(Relocating, OneThatWasSentSomewhereServesThere) {
  wire::Hello hello;
  hello.set_address(bench.members.members().at(a.peer).address);
  *hello.mutable_previous() = to_wire(a);
  bench.members.at(a.peer).moves_to = StageId{1};
  bench.lost(a);
  EXPECT_EQ(relocation.place(hello, 0), StageId{1});
}

// ---- Going --------------------------------------------------------------------------------------

TEST_F(Relocating, OneThatOwnsNothingGoesOnceItsHeartbeatSaysThatItHoldsNothing) {
  bench.seated(1);
  relocation.on_leave(b);
  EXPECT_TRUE(relocation.take_views_changed()) << "nothing new goes to it";
  EXPECT_FALSE(relocation.take_views_changed());
  ASSERT_TRUE(relocation.is_due());
  EXPECT_TRUE(released().empty()) << "what it said before may be over";
  EXPECT_FALSE(relocation.is_due());
  bench.members.at(b.peer).in_flight = 0;
  const MarkExpected drained("relocation.drained");
  const auto losses = released();
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].seat, b);
  EXPECT_EQ(losses[0].how, Departure::kLeft);
}

TEST_F(Relocating, WhoIsNotReadyLeavesAtOnce) {
  bench.members.become(b.peer, MemberState::kBuilding);
  relocation.on_leave(b);
  const auto losses = bench.rulings.take_losses();
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].how, Departure::kLeft);
  EXPECT_FALSE(relocation.is_due());
}

TEST_F(Relocating, TheLastOfItsStageStaysUntilAnotherHoldsTheState) {
  leaves(b);
  EXPECT_TRUE(released().empty());
  const Seat joiner = bench.seated(1);
  bench.members.become(joiner.peer, MemberState::kFollowing);
  EXPECT_TRUE(released().empty());
  bench.members.become(joiner.peer, MemberState::kReady);
  EXPECT_EQ(released().size(), 1U);
}

TEST_F(Relocating, WhoOwnsContributionsOfAnOpenStepStays) {
  bench.seated(1);
  bench.open_step(0);
  bench.complete_step(0);  // by a and b
  leaves(b);
  EXPECT_TRUE(released().empty());
  bench.ledger.abandon(kStep0);
  EXPECT_EQ(released().size(), 1U);
}

TEST_F(Relocating, WhoAveragesStaysUntilTheStepIsCommitted) {
  const Seat mate = bench.seated(1);  // owns nothing
  bench.open_step(0);
  bench.complete_step(0);
  bench.round.begin(0, Term{1});
  leaves(mate);
  EXPECT_TRUE(released().empty());
  bench.round.end();
  EXPECT_EQ(released().size(), 1U);
}

TEST_F(Relocating, WhoSavesItsStageStaysUntilThatHasEnded) {
  bench.seated(1);
  bench.checkpointer.begin_last({.version = 8, .updates = 8, .tokens = 512});
  bench.sink.work();
  ASSERT_TRUE(bench.checkpointer.is_saving(b));
  leaves(b);
  EXPECT_TRUE(released().empty());
  bench.checkpointer.on_rollback();
  EXPECT_EQ(released().size(), 1U);
}

TEST_F(Relocating, AMoverComesBackAtItsStageAndANoticeToLeaveIsForGood) {
  bench.seated(1);
  relocation.on_leave(b);
  Member& member = bench.members.at(b.peer);
  member.in_flight = 0;
  member.moves_to = StageId{0};
  const MarkExpected moved("relocation.moved");
  auto losses = released();
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].how, Departure::kMoves);
  EXPECT_EQ(losses[0].why, "to stage 0");
  relocation.on_leave(b);
  member.in_flight = 0;
  losses = released();
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].how, Departure::kLeft);
}

// ---- Moves --------------------------------------------------------------------------------------

TEST_F(Relocating, AMoveFromAStageThatHasNobodyElseIsCalledOff) {
  Member& member = bench.members.at(b.peer);
  bench.members.set_draining(b.peer, true);
  member.moves_to = StageId{0};
  const MarkExpected called_off("relocation.called_off");
  relocation.plan();
  EXPECT_FALSE(member.draining);
  EXPECT_FALSE(member.moves_to.has_value());
  EXPECT_TRUE(relocation.take_views_changed());
  leaves(b);
  relocation.plan();
  EXPECT_TRUE(member.draining) << "its own wish stands";
}

TEST_F(Relocating, WhereAStageIsShortOfWorkersOneOfAnotherMovesThere) {
  measured(a, 1s);
  for (int i = 0; i < 3; ++i) bench.seated(1);
  for (const Seat& seat : bench.members.ready_of(StageId{1})) measured(seat, 1s);
  plan();
  std::vector<Seat> movers;
  for (const auto& [peer, member] : bench.members.members())
    if (member.moves_to == StageId{0}) movers.push_back(member.seat);
  ASSERT_EQ(movers.size(), 1U);
  EXPECT_EQ(movers[0].stage, StageId{1});
  EXPECT_TRUE(bench.members.at(movers[0].peer).draining);
  EXPECT_TRUE(relocation.take_views_changed());
}

TEST_F(Relocating, OneThatBecameFarSlowerThanItsMatesIsLetGoWithTheReason) {
  measured(a, 1s);
  for (int i = 0; i < 3; ++i) bench.seated(1);
  for (int i = 0; i < 3; ++i) measured(bench.seated(0), 1s);
  for (const Seat& seat : bench.members.ready_of(StageId{1})) measured(seat, 1s);
  plan();
  for (int step = 0; step < 20; ++step) measured(b, 100s);
  plan();
  Member& member = bench.members.at(b.peer);
  EXPECT_FALSE(member.draining) << "it may be over soon";
  bench.clock.run_for(200s);
  const MarkExpected slow("relocation.fail_slow");
  plan();
  ASSERT_TRUE(member.draining);
  member.in_flight = 0;
  const auto losses = released();
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].seat, b);
  EXPECT_EQ(losses[0].how, Departure::kLeft);
  EXPECT_EQ(losses[0].why, member.let_go);
}

// A step of a hundred seconds, whose averaging takes one.
class RelocatingInsideAStep : public Relocating {
 protected:
  static constexpr Duration kStep = 100s, kRound = 1s;

  void SetUp() override {
    bench.stats.on_training_started(bench.alarms.now());
    bench.open_step(0);
    bench.clock.run_for(kStep - kRound);
    bench.complete_step(0);
    bench.round.begin(0, Term{1});
    bench.clock.run_for(kRound);
    for (const Seat& seat : {a, b}) bench.round.on_reduced(bench.reduced(seat, 1));
    ASSERT_TRUE(bench.round.mend());
    bench.round.end();
    bench.ledger.commit(kStep0);
    bench.phases.on_retired(kStep0);
    bench.stats.on_commit({.version = 1}, 0, {}, bench.alarms.now());
    plan();
    bench.clock.run_for(knobs().hand_over_look);
  }
  // Two more come to stage 1, where two serve one too many then.
  void two_come() {
    for (const Seat& seat : {bench.seated(1), bench.seated(1), a, b}) measured(seat, 1s);
    bench.balancer.seats_changed();
  }
};

TEST_F(RelocatingInsideAStep, ItPlansWhenSeatsChange) {
  bench.open_step(1);
  EXPECT_FALSE(relocation.plans_inside_step());
  two_come();
  ASSERT_TRUE(relocation.plans_inside_step());
  const MarkExpected inside("relocation.inside_step");
  relocation.plan_inside_step();
  EXPECT_FALSE(relocation.plans_inside_step()) << "nothing has changed since";
  std::vector<Member> movers;
  for (const auto& [peer, member] : bench.members.members())
    if (member.moves_to) movers.push_back(member);
  ASSERT_EQ(movers.size(), 1U);
  EXPECT_EQ(movers[0].goes_at, bench.alarms.now()) << "it gives away what it has added";
  relocation.on_leave(movers[0].seat);
  EXPECT_FALSE(bench.members.at(movers[0].seat.peer).goes_at.has_value())
      << "who leaves by its own wish has the time";
}

TEST_F(RelocatingInsideAStep, ItPlansAtMostEverySoOften) {
  bench.open_step(1);
  two_come();
  relocation.plan_inside_step();
  bench.balancer.seats_changed();
  EXPECT_FALSE(relocation.plans_inside_step());
  bench.clock.run_for(knobs().hand_over_look);
  EXPECT_TRUE(relocation.plans_inside_step());
}

TEST_F(RelocatingInsideAStep, WhatEndsSoonIsWaitedFor) {
  two_come();
  EXPECT_FALSE(relocation.plans_inside_step()) << "no step is open";
  bench.open_step(1);
  bench.complete_step(1);
  EXPECT_FALSE(relocation.plans_inside_step());
  plan();
  for (const auto& [peer, member] : bench.members.members()) EXPECT_FALSE(member.goes_at);
}

// Of three stages two are the slowest, and a spare of the third follows one of them.
TEST(BalanceDesk, InsideAStepNobodyMovesWhereNothingIsGained) {
  CoordinatorOptions options = bench_options(3, 4);
  options.config.balance.shadows = {.automatic = true};
  StatesBench bench(options);
  const auto seated = [&](std::uint16_t stage) {
    const Seat seat = bench.seated(stage);
    bench.members.measured(seat, 1'000'000'000, kPassesOfAMicrobatch);
    return seat;
  };
  bench.committed(1);
  const Seat spare = seated(0), slow = seated(1);
  for (const int stage : {0, 0, 2}) seated(static_cast<std::uint16_t>(stage));
  bench.audit.say(slow, 1, 7);
  bench.ready_shadow(spare, 1, 7);
  const Instant now = bench.alarms.now();
  EXPECT_EQ(bench.balancer.plan(bench.members, bench.shadows, now).moves.size(), 1U);
  EXPECT_TRUE(bench.balancer.plan_inside_step(bench.members, bench.shadows, now).moves.empty());
  seated(2);
  const SwarmPlan plan = bench.balancer.plan_inside_step(bench.members, bench.shadows, now);
  ASSERT_EQ(plan.moves.size(), 1U);
  EXPECT_EQ(plan.moves[0].peer, spare.peer);
  EXPECT_TRUE(plan.shadows.empty());
}

// ---- At risk ------------------------------------------------------------------------------------

TEST_F(Relocating, OneAtRiskGoesOnAndIsSaidOnce) {
  const MarkExpected said("relocation.at_risk");
  relocation.on_risk(b);
  relocation.on_risk(b);
  EXPECT_TRUE(bench.members.at(b.peer).at_risk);
  EXPECT_FALSE(bench.members.at(b.peer).draining);
  EXPECT_FALSE(relocation.is_due());
}

}  // namespace
}  // namespace swarmline
