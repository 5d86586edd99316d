// The coordinator's parts alone: who sits where, which phase comes when, what the groups report.
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "engine/base/limits.h"
#include "pipeline/coordinator/membership.h"
#include "pipeline/coordinator/reduce_board.h"
#include "pipeline/coordinator/run_sequence.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

Instant at(Duration since_start) {
  return Instant(1s + since_start);
}

wire::Hello hello(const std::string& address) {
  wire::Hello hello;
  hello.set_address(address);
  return hello;
}

// ---- Membership ---------------------------------------------------------------------------------

TEST(Membership, SeatsFillTheStagesEvenlyAndFormWhenAllAreReady) {
  Membership membership({2, 1});
  std::map<StageId, int> seats;
  std::vector<Seat> joined;
  for (int i = 0; i < 3; ++i) {
    const auto seat = membership.join(hello("a"), at(0s));
    ASSERT_TRUE(seat.has_value());
    ++seats[seat->stage];
    joined.push_back(*seat);
    EXPECT_FALSE(membership.formed());
  }
  EXPECT_EQ(seats[StageId{0}], 2);
  EXPECT_EQ(seats[StageId{1}], 1);
  for (const Seat& seat : joined) {
    EXPECT_FALSE(membership.formed());
    membership.at(seat.peer).state = MemberState::kReady;
  }
  EXPECT_TRUE(membership.formed());
  // One more that still builds its stage is waited for.
  const auto late = membership.join(hello("b"), at(0s));
  ASSERT_TRUE(late.has_value());
  EXPECT_FALSE(membership.formed());
  membership.at(late->peer).state = MemberState::kReady;
  EXPECT_TRUE(membership.formed());
}

TEST(Membership, OnlyTheCurrentSeatCounts) {
  Membership membership({1});
  const Seat seat = *membership.join(hello("a"), at(0s));
  EXPECT_TRUE(membership.is_current(seat));
  EXPECT_FALSE(membership.is_current({seat.peer, seat.stage, Incarnation{2}}));
  EXPECT_FALSE(membership.is_current({PeerId{9}, seat.stage, seat.incarnation}));
  membership.at(seat.peer).state = MemberState::kLost;
  EXPECT_FALSE(membership.is_current(seat));
}

TEST(Membership, SilenceEndsByAnyWordAndStartsOverAfterOnesOwnAbsence) {
  Membership membership({2});
  const Seat a = *membership.join(hello("a"), at(0s)), b = *membership.join(hello("b"), at(0s));
  EXPECT_FALSE(membership.silent_since(at(0s)));
  membership.heard(a, at(5s));
  auto silent = membership.silent_since(at(1s));
  ASSERT_TRUE(silent);
  EXPECT_EQ(silent->seat, b);
  wire::Heartbeat beat;
  *beat.mutable_seat() = to_wire(b);
  beat.set_in_flight(3);
  membership.heartbeat(beat, at(6s));
  EXPECT_FALSE(membership.silent_since(at(5s)));
  EXPECT_EQ(membership.at(b.peer).in_flight, 3U);
  // A word under an old name changes nothing.
  membership.heard({b.peer, b.stage, Incarnation{7}}, at(100s));
  EXPECT_TRUE(membership.silent_since(at(50s)));
  membership.restart_deadlines(at(60s));
  EXPECT_FALSE(membership.silent_since(at(50s)));
}

TEST(Membership, AViewNamesMatesAndTheNextStageWithinItsBound) {
  Membership membership({2, 40});
  for (int i = 0; i < 42; ++i) {
    const auto seat = membership.join(hello("host:" + std::to_string(i + 1)), at(0s));
    ASSERT_TRUE(seat.has_value());
    membership.at(seat->peer).state = MemberState::kReady;
  }
  const std::vector<Seat> first = membership.ready_of(StageId{0}),
                          second = membership.ready_of(StageId{1});
  ASSERT_EQ(first.size(), 2U);
  std::set<std::uint32_t> known;
  for (const Seat& seat : first) {
    const wire::Membership view = membership.view_for(seat);
    EXPECT_EQ(view.mates_size(), 1);
    EXPECT_EQ(view.next_size(), Limits::next_candidates_max);
    for (const auto& info : view.next()) {
      EXPECT_EQ(info.seat().stage(), 1U);
      EXPECT_FALSE(info.address().empty());
      EXPECT_TRUE(known.insert(info.seat().peer()).second)
          << "both senders know the same ones and others nobody";
    }
  }
  EXPECT_EQ(membership.view_for(second.front()).next_size(), 0);
  EXPECT_EQ(membership.view_for(second.front()).mates_size(), 39);
}

// ---- RunSequence --------------------------------------------------------------------------------

std::string opened(RunSequence& sequence) {
  std::string text;
  for (const auto& opening : sequence.take_openings())
    text += (text.empty() ? "" : ", ") + to_string(opening.phase) + " on " +
            std::to_string(opening.version.value);
  return text;
}

TEST(RunSequence, WithoutDelayAStepOpensOnTheCommitBefore) {
  RunSequence sequence({.steps = 2, .delay = 0, .eval_every_steps = 0, .eval = false});
  EXPECT_EQ(opened(sequence), "step 0 on 0");
  EXPECT_EQ(opened(sequence), "");
  EXPECT_FALSE(sequence.may_seal(1));
  EXPECT_TRUE(sequence.may_seal(0));
  sequence.on_sealed(0);
  EXPECT_EQ(opened(sequence), "");
  sequence.on_committed(0);
  EXPECT_EQ(opened(sequence), "step 1 on 1");
  sequence.on_sealed(1);
  EXPECT_FALSE(sequence.finished());
  sequence.on_committed(1);
  EXPECT_EQ(opened(sequence), "");
  EXPECT_TRUE(sequence.finished());
}

TEST(RunSequence, WithDelayAStepOpensWhileTheOneBeforeIsAveraged) {
  RunSequence sequence({.steps = 3, .delay = 1, .eval_every_steps = 0, .eval = false});
  EXPECT_EQ(opened(sequence), "step 0 on 0");
  sequence.on_sealed(0);
  EXPECT_EQ(opened(sequence), "step 1 on 0");
  EXPECT_FALSE(sequence.may_seal(1)) << "its version is the one that step 0's commit replaces";
  sequence.on_committed(0);
  EXPECT_TRUE(sequence.may_seal(1));
  sequence.on_sealed(1);
  EXPECT_EQ(opened(sequence), "step 2 on 1");
  sequence.on_committed(1);
  sequence.on_sealed(2);
  sequence.on_committed(2);
  EXPECT_TRUE(sequence.finished());
}

TEST(RunSequence, AnEvaluationHoldsBackTheSealThatWouldEndItsVersion) {
  RunSequence sequence({.steps = 2, .delay = 0, .eval_every_steps = 1, .eval = true});
  EXPECT_EQ(opened(sequence), "step 0 on 0") << "the initialisation is not evaluated";
  sequence.on_sealed(0);
  sequence.on_committed(0);
  EXPECT_EQ(opened(sequence), "eval of version 1 on 1, step 1 on 1");
  EXPECT_FALSE(sequence.may_seal(1));
  sequence.on_evaluated(1);
  EXPECT_TRUE(sequence.may_seal(1));
  sequence.on_sealed(1);
  sequence.on_committed(1);
  EXPECT_FALSE(sequence.finished()) << "the last version is evaluated too";
  EXPECT_EQ(opened(sequence), "eval of version 2 on 2");
  EXPECT_FALSE(sequence.finished());
  sequence.on_evaluated(2);
  EXPECT_TRUE(sequence.finished());
}

TEST(RunSequence, ADrainEndsWithTheOpenStep) {
  RunSequence sequence({.steps = 100, .delay = 1, .eval_every_steps = 1, .eval = true});
  EXPECT_EQ(opened(sequence), "step 0 on 0");
  sequence.on_sealed(0);
  EXPECT_EQ(opened(sequence), "step 1 on 0");
  sequence.drain();
  sequence.on_committed(0);
  EXPECT_FALSE(sequence.finished()) << "step 1 is open";
  sequence.on_sealed(1);
  EXPECT_EQ(opened(sequence), "");
  sequence.on_committed(1);
  EXPECT_EQ(opened(sequence), "");
  EXPECT_TRUE(sequence.finished());
}

// ---- ReduceBoard --------------------------------------------------------------------------------

Seat seat_of(std::uint32_t peer, std::uint16_t stage) {
  return {PeerId{peer}, StageId{stage}, Incarnation{1}};
}

wire::Reduced reduced(const Seat& seat, std::uint32_t group, std::uint64_t digest,
                      double squares = 1) {
  wire::Reduced report;
  *report.mutable_seat() = to_wire(seat);
  report.mutable_phase()->set_step(4);
  report.set_group(group);
  report.set_digest(digest);
  report.set_sum_of_squares(squares);
  report.set_reduce_bytes(10);
  return report;
}

TEST(ReduceBoard, IsDoneWhenEveryMemberOfEveryGroupHasTheSameBits) {
  ReduceBoard board;
  const Seat a = seat_of(1, 0), b = seat_of(2, 0), c = seat_of(3, 1);
  EXPECT_FALSE(board.done());
  board.begin(4, {{0, {a, b}}, {1, {c}}});
  EXPECT_TRUE(*board.report(reduced(a, 0, 77, 2)));
  EXPECT_FALSE(*board.report(reduced(a, 0, 77, 2))) << "said twice, counted once";
  EXPECT_EQ(board.missing(), (std::vector<Seat>{b, c}));
  EXPECT_TRUE(*board.report(reduced(c, 1, 5, 3)));
  EXPECT_FALSE(board.done());
  EXPECT_TRUE(*board.report(reduced(b, 0, 77, 2)));
  EXPECT_TRUE(board.done());
  EXPECT_EQ(board.sum_of_squares(), 5) << "each group once, not each member";
  EXPECT_EQ(board.reduce_bytes(), 30U);
  ASSERT_EQ(board.digests().size(), 2U);
  EXPECT_EQ(board.digests()[0].digest(), 77U);
}

TEST(ReduceBoard, StrangersAndOtherStepsChangeNothing) {
  ReduceBoard board;
  const Seat a = seat_of(1, 0);
  board.begin(4, {{0, {a}}});
  EXPECT_FALSE(*board.report(reduced(seat_of(9, 0), 0, 1)));
  EXPECT_FALSE(*board.report(reduced(a, 3, 1)));
  wire::Reduced other = reduced(a, 0, 1);
  other.mutable_phase()->set_step(3);
  EXPECT_FALSE(*board.report(other));
  other.mutable_phase()->set_step(4);
  other.mutable_phase()->set_eval(true);
  EXPECT_FALSE(*board.report(other));
  EXPECT_FALSE(board.done());
}

TEST(ReduceBoard, OtherBitsAreAnError) {
  ReduceBoard board;
  const Seat a = seat_of(1, 0), b = seat_of(2, 0);
  board.begin(4, {{0, {a, b}}});
  ASSERT_TRUE(board.report(reduced(a, 0, 77)).has_value());
  const auto other = board.report(reduced(b, 0, 78));
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code, ErrorCode::kIncompatible);
  EXPECT_NE(other.error().what.find("peer 1"), std::string::npos) << other.error().what;
  EXPECT_NE(other.error().what.find("peer 2"), std::string::npos) << other.error().what;
}

}  // namespace
}  // namespace swarmline
