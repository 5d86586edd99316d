// State transfer, shadows and takeovers, each without what is above it.
#include <gtest/gtest.h>

#include "pipeline/protocol/knobs.h"
#include "tests/coordinator/states_bench.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class States : public ::testing::Test {
 protected:
  void committed(std::uint64_t commits) { bench.committed(commits); }
  Seat ready_shadow(const Seat& host, std::uint16_t stage, std::uint64_t digest) {
    return bench.ready_shadow(host, stage, digest);
  }

  StatesBench bench;
  RunSequence& sequence = bench.sequence;
  ReplicaAudit& audit = bench.audit;
  StateTransfer& states = bench.states;
  CommitRound& round = bench.round;
  StandbyReplicas& standbys = bench.standbys;
  Takeovers& takeovers = bench.takeovers;
  const Seat a = bench.seated(0), b = bench.seated(1);
};

// ---- StateTransfer ------------------------------------------------------------------------------

TEST_F(States, AJoinerFollowsFromTheVersionThatItsMatesFreeze) {
  committed(5);
  const Seat joiner = bench.seated(1);
  bench.members.become(joiner.peer, MemberState::kBuilding);
  states.want(joiner);
  ASSERT_TRUE(states.is_due());
  const MarkExpected frozen("state_transfer.frozen");
  states.freeze();
  EXPECT_TRUE(bench.members.follows(joiner));
  ASSERT_EQ(bench.count(b, MessageKind::kFreezeState), 1U);
  EXPECT_EQ(bench.count(joiner, MessageKind::kStateOffer), 0U) << "nobody has it yet";
  wire::StateFrozen said;
  *said.mutable_seat() = to_wire(b);
  said.set_version(5);
  said.set_bytes(10);
  states.on_frozen(said);
  EXPECT_EQ(bench.count(joiner, MessageKind::kStateOffer), 0U) << "hashes are missing";
  said.add_hashes(std::string(64, 'a'));
  states.on_frozen(said);
  const auto offers = bench.told<wire::StateOffer>(joiner, MessageKind::kStateOffer);
  ASSERT_EQ(offers.size(), 1U);
  EXPECT_EQ(offers[0].version(), 5U);
  EXPECT_EQ(from_wire(offers[0].holders(0).seat()), b);
}

TEST_F(States, WhoComesWithAStateHearsOfTheCommitsSince) {
  for (std::uint64_t step = 0; step < 6; ++step) states.remember({.step = step});
  committed(6);
  EXPECT_TRUE(states.can_follow_on(6));
  EXPECT_TRUE(states.can_follow_on(2));
  EXPECT_FALSE(states.can_follow_on(1)) << "too many are missing";
  EXPECT_FALSE(states.can_follow_on(7)) << "nobody has that";
  const Seat joiner = bench.seated(1);
  states.follow_on(joiner, 4);
  const auto told = bench.told<wire::Commit>(joiner, MessageKind::kCommit);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].step(), 4U);
}

// ---- StandbyReplicas ----------------------------------------------------------------------------

TEST_F(States, AShadowIsReadyOnceAMemberHasTheSameBits) {
  committed(3);
  standbys.add(a, StageId{1}, "test");
  EXPECT_EQ(bench.count(a, MessageKind::kFollow), 1U);
  const Seat shadow{a.peer, StageId{1}, a.incarnation};
  standbys.on_ready(shadow, 3, 77);
  bench.check_shadows();
  EXPECT_TRUE(bench.shadows.ready_of(StageId{1}).empty()) << "nobody has said what is right";
  audit.say(b, 3, 77);
  standbys.look_at(StageId{1});
  bench.check_shadows();
  EXPECT_EQ(bench.shadows.ready_of(StageId{1}), std::vector{shadow});
}

TEST_F(States, WhereNobodyIsLeftToConfirmItAShadowThatHoldsWhatIsCommittedIsReady) {
  committed(3);
  standbys.add(a, StageId{1}, "test");
  const Seat shadow{a.peer, StageId{1}, a.incarnation};
  standbys.on_ready(shadow, 2, 66);
  standbys.confirm_alone(StageId{1});
  EXPECT_TRUE(bench.shadows.ready_of(StageId{1}).empty()) << "it lacks a commit";
  const MarkExpected alone("standby_replicas.confirmed_alone");
  standbys.on_ready(shadow, 3, 77);
  standbys.confirm_alone(StageId{1});
  EXPECT_EQ(bench.shadows.ready_of(StageId{1}), std::vector{shadow});
}

TEST_F(States, AShadowWithOtherBitsEnds) {
  committed(3);
  audit.say(b, 3, 77);
  const MarkExpected other("standby_replicas.other_bits");
  ready_shadow(a, 1, 78);
  EXPECT_TRUE(bench.shadows.empty());
  const auto told = bench.told<wire::Follow>(a, MessageKind::kFollow);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_TRUE(told[1].drop());
}

TEST_F(States, AShadowThatDoesNotKeepUpIsDemoted) {
  committed(3);
  audit.say(b, 3, 77);
  const Seat shadow = ready_shadow(a, 1, 77);
  bench.shadows.asked(shadow, bench.alarms.now());
  bench.clock.run_for(knobs().shadow_late_min + 1s);
  standbys.demote_late([](StageId) { return true; });
  EXPECT_FALSE(bench.shadows.empty()) << "nobody is there to fetch from";
  const MarkExpected demoted("standby_replicas.demoted");
  standbys.demote_late([](StageId) { return false; });
  EXPECT_TRUE(bench.shadows.empty());
  EXPECT_TRUE(bench.shadows.rests(a.peer, bench.alarms.now()));
}

TEST_F(States, AShadowTellsWhichOfTwoIsRight) {
  committed(3);
  const Seat mate = bench.seated(1);
  audit.say(b, 3, 77);
  audit.say(mate, 3, 77);
  ready_shadow(a, 1, 77);
  ReplicaAudit::Votes votes{{77, {b}}, {78, {mate}}};
  const MarkExpected settled("standby_replicas.settled_a_tie");
  EXPECT_TRUE(standbys.settle_tie(StageId{1}, 3, votes));
  const auto losses = bench.rulings.take_losses();
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].seat, mate);
  EXPECT_FALSE(standbys.settle_tie(StageId{0}, 3, votes)) << "that stage has no shadow";
}

// ---- Takeovers ----------------------------------------------------------------------------------

class TakingOver : public States {
 protected:
  TakingOver() {
    committed(3);
    audit.say(b, 3, 77);
    ready_shadow(host, 1, 77);
  }
  SeatLoss lose_b() {
    const SeatLoss loss = bench.lost(b);
    round.on_seat_lost(loss);
    standbys.on_seat_lost(loss);
    return loss;
  }
  // After a look at deadlines, and what follows.
  bool still_awaits_host() {
    takeovers.check_deadlines();
    takeovers.send_candidates();
    return takeovers.awaits({host.peer, StageId{1}, Incarnation{2}});
  }
  const Seat host = bench.seated(0);
};

TEST_F(TakingOver, AnEmptiedStageIsTakenOverByAShadowsHost) {
  const SeatLoss loss = lose_b();
  ASSERT_TRUE(takeovers.await_candidate(loss));
  EXPECT_TRUE(takeovers.is_emptied(StageId{1}));
  const MarkExpected sent("takeovers.candidate_sent"), taken("takeovers.taken_over");
  takeovers.send_candidates();
  const auto moves = bench.rulings.take_losses();
  ASSERT_EQ(moves.size(), 1U);
  EXPECT_EQ(moves[0].seat, host);
  EXPECT_EQ(moves[0].how, Departure::kMoves);
  EXPECT_TRUE(takeovers.was_sent(bench.members.members().at(host.peer)));
  const Seat back{host.peer, StageId{1}, Incarnation{2}};
  takeovers.seated(back);
  takeovers.check_invariants();
  EXPECT_EQ(takeovers.on_ready(bench.seated(1), 3, 77), Takeovers::Arrival::kNone);
  EXPECT_EQ(takeovers.on_ready(back, 3, 77), Takeovers::Arrival::kTakenOver);
  EXPECT_FALSE(takeovers.any());
}

TEST_F(TakingOver, WhoComesWithAnotherStateIsLost) {
  takeovers.await_candidate(lose_b());
  takeovers.send_candidates();
  bench.rulings.take_losses();
  const Seat back{host.peer, StageId{1}, Incarnation{2}};
  takeovers.seated(back);
  EXPECT_EQ(takeovers.on_ready(back, 3, 99), Takeovers::Arrival::kWrongState);
  EXPECT_EQ(bench.rulings.take_losses().size(), 1U);
}

// Nobody else has the state: it may not have heard that it was sent.
TEST_F(TakingOver, WhoWasSentIsWaitedForAsLongAsThatIsWorthIt) {
  const MarkExpected waits("takeovers.waits"), given_up("takeovers.given_up");
  bench.patience = 3 * knobs().return_time;
  // Its address does not answer, nor refuse.
  const auto bound =
      bench.network.node(1).listen({"sim", 0}, [](const std::shared_ptr<Connection>&) {});
  bench.members.at(host.peer).address = to_string(*bound);
  bench.clock.freeze(1);
  takeovers.await_candidate(lose_b());
  takeovers.send_candidates();
  standbys.on_seat_lost(bench.lost(host));
  bench.clock.run_for(knobs().return_time + 1s);
  EXPECT_TRUE(still_awaits_host());
  EXPECT_FALSE(takeovers.awaits({a.peer, StageId{1}, Incarnation{2}}));
  bench.clock.run_for(knobs().return_time);
  EXPECT_TRUE(still_awaits_host());
  EXPECT_EQ(takeovers.given_up(), 0U);
  bench.clock.run_for(knobs().return_time);
  takeovers.check_deadlines();
  EXPECT_EQ(takeovers.given_up(), 1U);
  takeovers.send_candidates();
  EXPECT_EQ(bench.rulings.take_gone_stages().size(), 1U);
}

TEST_F(TakingOver, WhoWasSentIsNotWaitedForWhereThatIsWorthNothing) {
  bench.patience = 1s;
  takeovers.await_candidate(lose_b());
  takeovers.send_candidates();
  standbys.on_seat_lost(bench.lost(host));
  bench.clock.run_for(knobs().return_time + 1s);
  EXPECT_FALSE(still_awaits_host());
  EXPECT_EQ(takeovers.given_up(), 1U);
}

TEST_F(TakingOver, WhoseProcessIsGoneIsNotWaitedFor) {
  const MarkExpected gone("takeovers.gone");
  bench.members.at(host.peer).address = "sim:9";  // where nobody listens
  takeovers.await_candidate(lose_b());
  takeovers.send_candidates();
  standbys.on_seat_lost(bench.lost(host));
  bench.clock.run_for(knobs().return_time + 1s);
  EXPECT_TRUE(still_awaits_host());
  bench.clock.run_for(1s);
  EXPECT_FALSE(still_awaits_host());
  EXPECT_EQ(takeovers.given_up(), 0U) << "nobody was waited for in vain";
}

TEST_F(TakingOver, WithoutACandidateTheStageIsGone) {
  EXPECT_FALSE(takeovers.await_candidate({.seat = a, .why = "lost"})) << "nobody follows stage 0";
  const SeatLoss loss = lose_b();
  takeovers.await_candidate(loss);
  takeovers.send_candidates();
  bench.rulings.take_losses();
  // It does not come back.
  const MarkExpected late("takeovers.deadline"), given_up("takeovers.candidate_given_up");
  bench.clock.run_for(knobs().return_time + 1s);
  takeovers.check_deadlines();
  bench.shadows = ShadowDesk();
  ASSERT_TRUE(takeovers.is_due());
  takeovers.send_candidates();
  const auto gone = bench.rulings.take_gone_stages();
  ASSERT_EQ(gone.size(), 1U);
  EXPECT_EQ(gone[0].seat, b);
  EXPECT_FALSE(takeovers.any());
}

}  // namespace
}  // namespace swarmline
