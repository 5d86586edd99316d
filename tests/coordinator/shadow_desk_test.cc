#include "pipeline/coordinator/states/shadow_desk.h"

#include <gtest/gtest.h>

#include "pipeline/coordinator/steps/reduce_board.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

const Instant kStart{};

Seat shadow_of(std::uint16_t stage, std::uint32_t host) {
  return {PeerId{host}, StageId{stage}, Incarnation{1}};
}

void make_ready(ShadowDesk& desk, const Seat& shadow, std::uint16_t host_stage,
                std::uint64_t version, Instant now = kStart) {
  desk.add(shadow, StageId{host_stage}, now);
  desk.begin(shadow, now);
  desk.said(shadow, version, 7, now);
  desk.confirm(shadow, now);
}

TEST(ShadowDesk, TheHeirIsTheOneWhoseStageCanDoWithoutIt) {
  ShadowDesk desk;
  make_ready(desk, shadow_of(1, 10), 0, 5);
  make_ready(desk, shadow_of(1, 11), 2, 5);
  desk.add(shadow_of(1, 12), StageId{3}, kStart);  // not ready
  std::map<StageId, std::size_t> served{{StageId{0}, 1}, {StageId{2}, 2}, {StageId{3}, 9}};
  const auto serving = [&](StageId stage) { return served[stage]; };
  EXPECT_EQ(desk.heir(StageId{1}, 5, serving), shadow_of(1, 11));
  served[StageId{2}] = 1;
  EXPECT_FALSE(desk.heir(StageId{1}, 5, serving)) << "it would empty another stage";
  make_ready(desk, shadow_of(2, 20), 3, 5);
  EXPECT_EQ(desk.heir(StageId{1}, 5, serving), shadow_of(1, 11)) << "its own has a shadow";
  served[StageId{3}] = 1;
  EXPECT_FALSE(desk.heir(StageId{1}, 5, serving));
}

TEST(ShadowDesk, TheHeirHasAllThatIsCommitted) {
  ShadowDesk desk;
  make_ready(desk, shadow_of(1, 10), 0, 5);
  make_ready(desk, shadow_of(1, 11), 0, 5);
  const auto serving = [](StageId) { return std::size_t{2}; };
  desk.committed(shadow_of(1, 10), 6, false, kStart);
  desk.committed(shadow_of(1, 11), 6, true, kStart);
  EXPECT_EQ(desk.heir(StageId{1}, 6, serving), shadow_of(1, 11)) << "it can step to it by itself";
  desk.said(shadow_of(1, 10), 6, 7, kStart);
  EXPECT_EQ(desk.heir(StageId{1}, 6, serving), shadow_of(1, 10)) << "it is there";
}

TEST(ShadowDesk, ReadyOnesAreLateWhenTheyDoNotAnswer) {
  ShadowDesk desk;
  const Seat quick = shadow_of(1, 10), slow = shadow_of(1, 11);
  desk.add(quick, StageId{0}, kStart);
  desk.add(slow, StageId{0}, kStart);
  desk.said(quick, 5, 7, kStart + 100ms);
  desk.said(slow, 5, 7, kStart + 10s);
  for (const Seat& seat : {quick, slow}) {
    desk.confirm(seat, kStart + 10s);
    desk.asked(seat, kStart + 20s);
  }
  EXPECT_TRUE(desk.late(kStart + 22s).empty());
  EXPECT_EQ(desk.late(kStart + 23s), std::vector<Seat>{quick});
  EXPECT_EQ(desk.late(kStart + 41s), (std::vector<Seat>{quick, slow}));
  desk.answered(quick);
  desk.committed(slow, 6, false, kStart + 41s);
  EXPECT_TRUE(desk.late(kStart + 60s).empty());
  EXPECT_EQ(desk.late(kStart + 62s), std::vector<Seat>{slow}) << "behind the commit";
  desk.restart_deadlines(kStart + 62s);
  EXPECT_TRUE(desk.late(kStart + 63s).empty());
}

TEST(ShadowDesk, WhoHasRestedIsForgotten) {
  ShadowDesk desk;
  const Duration rest = knobs().shadow_rest_time;
  for (std::uint32_t host = 1; host <= 100; ++host) {
    const Instant now = kStart + host * rest / 4;
    desk.rest(PeerId{host}, now);
    EXPECT_TRUE(desk.rests(PeerId{host}, now));
    EXPECT_LE(desk.resting(), 4U);
  }
  desk.forget(PeerId{100});
  EXPECT_FALSE(desk.rests(PeerId{100}, kStart + 100 * rest / 4)) << "it is long gone";
}

TEST(ShadowDesk, OneThatNeverFetchesIsGivenUp) {
  ShadowDesk desk;
  desk.add(shadow_of(1, 10), StageId{0}, kStart);
  EXPECT_TRUE(desk.late(kStart + knobs().shadow_fetch_time).empty());
  EXPECT_EQ(desk.late(kStart + knobs().shadow_fetch_time + 1s).size(), 1U);
}

// ---- What keepers change on the board -----------------------------------------------------------

wire::Reduced reduced(const Seat& seat, std::uint64_t digest) {
  wire::Reduced message;
  *message.mutable_seat() = to_wire(seat);
  *message.mutable_phase() = to_wire(Phase{PhaseKind::kTrain, 3});
  message.set_group(1);
  message.set_digest(digest);
  message.set_sum_of_squares(2);
  return message;
}

struct Board : ReduceBoard {
  Seat a = shadow_of(1, 1), b = shadow_of(1, 2), k = shadow_of(1, 10), l = shadow_of(1, 11);
  Board() { begin(3, {{GroupId{1}, {a, b}}}, {{GroupId{1}, {k, l}}}); }
};

TEST(Keepers, AStepIsNotDoneBeforeOneOfThemHasItsResult) {
  Board board;
  EXPECT_TRUE(board.take_late(GroupId{1}).empty()) << "nobody has it";
  EXPECT_TRUE(board.report(reduced(board.a, 5)));
  EXPECT_EQ(board.take_late(GroupId{1}), (std::vector<Seat>{board.k, board.l}));
  EXPECT_TRUE(board.report(reduced(board.b, 5)));
  EXPECT_FALSE(board.done());
  EXPECT_TRUE(board.report(reduced(board.l, 5)));
  EXPECT_TRUE(board.done());
}

// Two that have half of it each could not go on alone: the stage's tied parameters are another
// group's.
TEST(Keepers, OneOfThemHasTheResultsOfAllOfItsStagesGroups) {
  const Seat a = shadow_of(1, 1), k = shadow_of(1, 10), l = shadow_of(1, 11);
  ReduceBoard board;
  board.begin(3, {{GroupId{1}, {a}}, {GroupId{2}, {a}}},
              {{GroupId{1}, {k, l}}, {GroupId{2}, {k, l}}});
  const auto of_group = [](std::uint32_t group, const Seat& seat) {
    wire::Reduced message = reduced(seat, 5);
    message.set_group(group);
    return message;
  };
  for (const std::uint32_t group : {1, 2}) board.report(of_group(group, a));
  board.report(of_group(1, k));
  board.report(of_group(2, l));
  EXPECT_FALSE(board.done());
  board.report(of_group(1, l));
  EXPECT_TRUE(board.done());
}

TEST(Keepers, OneThatIsReadyMeanwhileIsWaitedFor) {
  Board board;
  const Seat late{PeerId{12}, StageId{0}, Incarnation{1}};
  for (const Seat& seat : {board.a, board.b, board.k}) board.report(reduced(seat, 5));
  EXPECT_TRUE(board.done());
  board.add_keeper(GroupId{1}, late);
  board.add_keeper(GroupId{1}, late);
  EXPECT_FALSE(board.done()) << "the first of its stage";
  EXPECT_EQ(board.take_late(GroupId{1}).back(), late);
  EXPECT_TRUE(board.report(reduced(late, 5)));
  EXPECT_TRUE(board.done());
}

TEST(Keepers, OnesThatAreLostAreNotWaitedFor) {
  Board board;
  board.report(reduced(board.a, 5));
  board.report(reduced(board.b, 5));
  board.lose(board.k);
  EXPECT_FALSE(board.done());
  board.lose(board.l);
  EXPECT_TRUE(board.done());
  EXPECT_TRUE(board.broken().empty());
}

TEST(Keepers, TheResultOutlivesAllMembersWhereOneHasIt) {
  Board board;
  board.report(reduced(board.a, 5));
  board.report(reduced(board.k, 5));
  board.lose(board.a);
  board.lose(board.b);
  EXPECT_TRUE(board.held(GroupId{1}));
  EXPECT_TRUE(board.broken().empty());
  EXPECT_FALSE(board.done()) << "nobody serves the stage";
  const Seat seat{PeerId{10}, StageId{1}, Incarnation{2}};
  board.take_late(GroupId{1});
  board.seat_keeper(board.k, seat);
  EXPECT_EQ(board.members(GroupId{1}), std::vector<Seat>{seat});
  EXPECT_EQ(board.take_late(GroupId{1}), std::vector<Seat>{board.l}) << "who it was to ask is gone";
  EXPECT_FALSE(board.done());
  board.report(reduced(board.l, 5));
  EXPECT_TRUE(board.done());
}

TEST(Keepers, WithoutItTheRoundIsBroken) {
  Board board;
  board.report(reduced(board.a, 5));
  board.lose(board.a);
  board.lose(board.b);
  EXPECT_EQ(board.broken(), std::vector{GroupId{1}});
}

TEST(Keepers, BitsThatMostMembersDoNotHaveAreFetchedAgain) {
  const Seat c = shadow_of(1, 3), k = shadow_of(1, 10);
  ReduceBoard board;
  board.begin(3, {{GroupId{1}, {shadow_of(1, 1), shadow_of(1, 2), c}}}, {{GroupId{1}, {k}}});
  board.report(reduced(c, 9));
  board.take_late(GroupId{1});
  board.report(reduced(k, 9));
  board.report(reduced(shadow_of(1, 1), 5));
  board.report(reduced(shadow_of(1, 2), 5));
  EXPECT_EQ(board.settle_differences(GroupId{1}), std::vector<Seat>{c});
  EXPECT_EQ(board.take_late(GroupId{1}), std::vector<Seat>{k});
  board.report(reduced(c, 5));
  EXPECT_FALSE(board.done());
  board.report(reduced(k, 5));
  EXPECT_TRUE(board.done());
}

}  // namespace
}  // namespace swarmline
