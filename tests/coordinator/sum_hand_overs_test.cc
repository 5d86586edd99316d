// Who gives its sums to whom, and what calls it off, without a coordinator.
#include "pipeline/coordinator/steps/sum_hand_overs.h"

#include <gtest/gtest.h>

#include "tests/coordinator/parts_bench.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

const Phase kStep0{PhaseKind::kTrain, 0};

class HandingOver : public ::testing::Test {
 protected:
  // The giver has contributed to half of an open step, and goes soon.
  void SetUp() override {
    bench.open_step(0);
    bench.ledger.lease(kStep0, source, 4);
    for (std::uint32_t index = 0; index < 2; ++index)
      bench.ledger.report(kStep0, StageId{1}, index, giver, Attempt{});
    leaves(giver, 10s);
  }
  void leaves(const Seat& seat, Duration in) {
    Member& member = bench.members.at(seat.peer);
    bench.members.set_draining(seat.peer, true);
    member.goes_at = bench.alarms.now() + in;
    member.in_flight = 0;
  }
  // Nothing is added meanwhile: the step ends never, as it seems.
  void look_for_a_while() {
    hand_overs.look();
    bench.clock.run_for(knobs().hand_over_look + 1ms);
    hand_overs.look();
  }
  wire::SumsFrozen frozen(std::vector<std::uint32_t> indices) const {
    wire::SumsFrozen said;
    *said.mutable_seat() = to_wire(giver);
    *said.mutable_phase() = to_wire(kStep0);
    for (const std::uint32_t index : indices) said.add_contributions()->set_index(index);
    said.set_bytes(bench.shape.layouts[1].bytes());
    said.add_hashes(std::string(64, 'a'));
    return said;
  }
  wire::SumsTaken taken(const Seat& seat, bool refused = false) const {
    wire::SumsTaken said;
    *said.mutable_seat() = to_wire(seat);
    *said.mutable_phase() = to_wire(kStep0);
    *said.mutable_giver() = to_wire(giver);
    said.set_refused(refused);
    return said;
  }
  std::size_t given() { return bench.count(giver, MessageKind::kGiveSums); }
  Seat asked_to_take() {
    for (const Seat& seat : {mate, other})
      if (bench.count(seat, MessageKind::kTakeSums) > 0) return seat;
    return {};
  }

  PartsBench bench;
  SumHandOvers hand_overs{bench.shape,  bench.alarms, bench.members, bench.ledger,
                          bench.phases, bench.outbox, bench.events};
  const Seat source = bench.seated(0), giver = bench.seated(1), mate = bench.seated(1),
             other = bench.seated(1);
};

TEST_F(HandingOver, TheOwnerChangesOnceAMateHasAll) {
  look_for_a_while();
  ASSERT_EQ(given(), 1U);
  hand_overs.on_frozen(giver, frozen({0, 1}));
  const Seat taker = asked_to_take();
  ASSERT_EQ(taker, mate);
  EXPECT_EQ(bench.ledger.owner(kStep0, StageId{1}, 0), giver);
  EXPECT_TRUE(hand_overs.on_taken(taker, taken(taker)));
  EXPECT_EQ(bench.ledger.owner(kStep0, StageId{1}, 0), taker);
  for (const Seat& seat : {giver, taker}) EXPECT_EQ(bench.count(seat, MessageKind::kSumsMoved), 1U);
  EXPECT_FALSE(hand_overs.on_taken(taker, taken(taker))) << "it is over";
}

TEST_F(HandingOver, WhoStaysUntilTheStepEndsKeepsItsOwn) {
  leaves(giver, 1h);
  hand_overs.look();
  bench.clock.run_for(10s);
  bench.ledger.report(kStep0, StageId{0}, 0, source, Attempt{});
  hand_overs.look();
  EXPECT_EQ(given(), 0U) << "30 s more, at that pace";
}

TEST_F(HandingOver, WhoStillHasSomethingUnderWayIsNotAsked) {
  bench.members.at(giver.peer).in_flight = 1;
  look_for_a_while();
  EXPECT_EQ(given(), 0U);
}

TEST_F(HandingOver, ACopyOfSomethingElseIsAskedForOnceMore) {
  const MarkExpected not_yet("hand_overs.not_yet");
  std::vector<wire::SumsFrozen> wrong = {frozen({0}), frozen({0, 1, 2}), frozen({}), frozen({0, 1}),
                                         frozen({0, 1})};
  wrong[3].set_bytes(8);
  wrong[4].set_hashes(0, "short");
  look_for_a_while();
  for (const wire::SumsFrozen& said : wrong) {
    hand_overs.on_frozen(giver, said);
    EXPECT_EQ(asked_to_take(), Seat{});
    hand_overs.look();
  }
  EXPECT_EQ(given(), 1U + wrong.size());
}

TEST_F(HandingOver, AnotherMateIsAskedWhereOneRefuses) {
  const MarkExpected refused("hand_overs.refused");
  look_for_a_while();
  hand_overs.on_frozen(giver, frozen({0, 1}));
  EXPECT_FALSE(hand_overs.on_taken(mate, taken(mate, true)));
  EXPECT_EQ(bench.ledger.owner(kStep0, StageId{1}, 0), giver);
  hand_overs.look();
  hand_overs.on_frozen(giver, frozen({0, 1}));
  EXPECT_EQ(bench.count(other, MessageKind::kTakeSums), 1U);
  EXPECT_TRUE(hand_overs.on_taken(other, taken(other)));
}

TEST_F(HandingOver, OnlyWhoWasAskedTakesIt) {
  look_for_a_while();
  EXPECT_FALSE(hand_overs.on_taken(mate, taken(mate))) << "nothing is frozen";
  hand_overs.on_frozen(mate, frozen({0, 1}));
  hand_overs.on_frozen(giver, frozen({0, 1}));
  EXPECT_FALSE(hand_overs.on_taken(other, taken(other)));
  EXPECT_EQ(bench.ledger.owner(kStep0, StageId{1}, 0), giver);
}

TEST_F(HandingOver, ASealCallsItOff) {
  const MarkExpected late("hand_overs.too_late");
  look_for_a_while();
  hand_overs.on_frozen(giver, frozen({0, 1}));
  for (std::uint32_t index = 0; index < 4; ++index) {
    bench.ledger.report(kStep0, StageId{0}, index, source, Attempt{});
    bench.ledger.report(kStep0, StageId{1}, index, mate, Attempt{});
  }
  bench.phases.seal(0);
  EXPECT_FALSE(hand_overs.on_taken(mate, taken(mate)));
  const auto off = bench.told<wire::SumsMoved>(mate, MessageKind::kSumsMoved);
  ASSERT_EQ(off.size(), 1U);
  EXPECT_FALSE(off[0].has_taker());
}

TEST_F(HandingOver, ALostSeatCallsItOff) {
  look_for_a_while();
  hand_overs.on_frozen(giver, frozen({0, 1}));
  hand_overs.on_seat_lost(bench.lost(mate));
  EXPECT_FALSE(hand_overs.on_taken(mate, taken(mate)));
  hand_overs.look();
  hand_overs.on_frozen(giver, frozen({0, 1}));
  EXPECT_EQ(bench.count(other, MessageKind::kTakeSums), 1U) << "another one takes it";
}

}  // namespace
}  // namespace swarmline
