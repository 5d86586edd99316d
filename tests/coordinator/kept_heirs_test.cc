// Emptied stages that wait for one that kept their state: who is waited for, and how long.
#include "pipeline/coordinator/states/kept_heirs.h"

#include <gtest/gtest.h>

#include "pipeline/protocol/knobs.h"
#include "tests/coordinator/states_bench.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class Heirs : public ::testing::Test {
 protected:
  Heirs() { bench.committed(5); }
  // At an address that does not answer, nor refuse.
  Seat silent() {
    const Seat seat = bench.seated(1);
    const auto bound =
        bench.network.node(1).listen({"sim", 0}, [](const std::shared_ptr<Connection>&) {});
    bench.members.at(seat.peer).address = to_string(*bound);
    bench.clock.freeze(1);
    return seat;
  }
  SeatLoss lost(const Seat& seat) {
    const SeatLoss loss = bench.lost(seat);
    heirs.may_keep(seat.peer, seat.stage);
    return loss;
  }
  // It asks for a seat again, and says what it kept.
  Seat back(const Seat& before, std::uint64_t version, StageId to = StageId{1}) {
    wire::Hello hello;
    *hello.mutable_previous() = to_wire(before);
    hello.set_address(bench.members.at(before.peer).address);
    hello.mutable_kept()->set_stage(1);
    hello.mutable_kept()->set_version(version);
    const Seat seat = *bench.members.join(hello, to);
    heirs.came_back(seat.peer);
    return seat;
  }
  bool is_gone() {
    heirs.wake();
    heirs.check();
    return !bench.rulings.take_gone_stages().empty();
  }

  StatesBench bench;
  KeptHeirs& heirs = bench.kept_heirs;
  const Seat a = silent(), b = silent();
};

TEST_F(Heirs, NobodyElseWasThere) {
  EXPECT_FALSE(heirs.await(lost(a))) << "the last one itself was given up";
  EXPECT_FALSE(heirs.any());
}

TEST_F(Heirs, WhoComesBackWithTheCommittedVersionIsWaitedForUntilItServes) {
  const MarkExpected awaited("kept_heirs.awaited"), inherited("kept_heirs.inherited");
  lost(a);
  ASSERT_TRUE(heirs.await(lost(b)));
  const Seat heir = back(a, 5);
  bench.clock.run_for(knobs().return_time + 1s);
  EXPECT_FALSE(is_gone()) << "it builds";
  bench.members.become(heir.peer, MemberState::kReady);
  EXPECT_FALSE(is_gone());
  EXPECT_FALSE(heirs.any());
}

TEST_F(Heirs, WhoComesBackWithAnOlderVersionIsNone) {
  lost(a);
  ASSERT_TRUE(heirs.await(lost(b)));
  back(b, 4);
  EXPECT_FALSE(is_gone()) << "the other may come yet";
  back(a, 4);
  EXPECT_TRUE(is_gone());
}

// It was seated elsewhere when the stage had somebody else, and holds no other state yet.
TEST_F(Heirs, WhoIsOnItsWayElsewhereIsCalledBack) {
  const MarkExpected called("kept_heirs.called_back");
  lost(a);
  const Seat elsewhere = back(a, 5, StageId{0});
  ASSERT_TRUE(heirs.await(lost(b)));
  EXPECT_FALSE(is_gone());
  const auto losses = bench.rulings.take_losses();
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].seat, elsewhere);
  EXPECT_EQ(losses[0].how, Departure::kMoves);
  lost(elsewhere);
  heirs.may_keep(elsewhere.peer, StageId{1});
  EXPECT_FALSE(is_gone()) << "it comes";
  EXPECT_TRUE(bench.rulings.take_losses().empty());
  EXPECT_TRUE(heirs.wants_back(StageId{1}));
  bench.members.become(back(elsewhere, 5).peer, MemberState::kReady);
  EXPECT_FALSE(is_gone());
  EXPECT_FALSE(heirs.any());
}

TEST_F(Heirs, OneIsCalledBackAfterAnother) {
  const Seat c = silent();
  lost(a);
  lost(b);
  const Seat first = back(a, 5, StageId{0}), second = back(b, 5, StageId{0});
  ASSERT_TRUE(heirs.await(lost(c)));
  EXPECT_FALSE(is_gone());
  ASSERT_EQ(bench.rulings.take_losses().size(), 1U);
  lost(first);
  heirs.may_keep(first.peer, StageId{1});
  EXPECT_FALSE(is_gone());
  EXPECT_TRUE(bench.rulings.take_losses().empty());
  back(first, 4, StageId{0});
  EXPECT_FALSE(is_gone()) << "another has it";
  const auto losses = bench.rulings.take_losses();
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].seat, second);
}

TEST_F(Heirs, WhoHoldsAnotherStateByNowIsNotCalledBack) {
  lost(a);
  bench.members.become(back(a, 5, StageId{0}).peer, MemberState::kReady);
  EXPECT_FALSE(heirs.await(lost(b)));
}

TEST_F(Heirs, WhoDoesNotComeIsNotWaitedForLonger) {
  lost(a);
  ASSERT_TRUE(heirs.await(lost(b)));
  bench.clock.run_for(knobs().return_time - 1s);
  EXPECT_FALSE(is_gone());
  bench.clock.run_for(2s);
  EXPECT_TRUE(is_gone());
  EXPECT_FALSE(heirs.any());
}

TEST_F(Heirs, AnHeirThatNeverBuildsIsNotWaitedForLonger) {
  lost(a);
  ASSERT_TRUE(heirs.await(lost(b)));
  back(a, 5);
  EXPECT_FALSE(is_gone());
  bench.clock.run_for(knobs().build_time + 1s);
  EXPECT_TRUE(is_gone());
}

TEST_F(Heirs, WaitingIsNotLongerThanItIsWorth) {
  bench.patience = 1s;
  lost(a);
  ASSERT_TRUE(heirs.await(lost(b)));
  bench.clock.run_for(1100ms);
  EXPECT_TRUE(is_gone());
  bench.patience = 0s;
  EXPECT_FALSE(heirs.await({.seat = b, .why = "lost"}));
}

TEST_F(Heirs, WhoseProcessIsGoneIsNotWaitedFor) {
  const MarkExpected gone("kept_heirs.gone");
  bench.members.at(a.peer).address = bench.members.at(b.peer).address = "sim:9";
  lost(a);
  ASSERT_TRUE(heirs.await(lost(b)));
  bench.clock.run_for(1s);
  EXPECT_TRUE(is_gone());
}

TEST_F(Heirs, AShadowThatHasFetchedItAllAndHasNotSaidSoIsWaitedFor) {
  const MarkExpected has_it("kept_heirs.a_shadow_has_it");
  const Seat host = bench.seated(0), mate = bench.seated(0);
  const Seat shadow{host.peer, StageId{1}, host.incarnation};
  lost(a);
  bench.standbys.add(host, StageId{1}, "test");
  bench.standbys.on_want_state(shadow);
  bench.states.freeze();
  ASSERT_TRUE(heirs.await(lost(b)));
  heirs.came_back(a.peer);
  heirs.came_back(b.peer);
  EXPECT_FALSE(is_gone()) << to_string(mate);
  bench.standbys.on_ready(shadow, 5, 77);
  EXPECT_FALSE(is_gone());
  EXPECT_FALSE(heirs.any());
  EXPECT_TRUE(bench.takeovers.is_emptied(StageId{1}));
}

// Its host is the last of its own stage: it goes once another has come back there with a copy.
TEST_F(Heirs, AShadowThatIsBoundToItsOwnStageIsWaitedForAsLongAsItMayBeFreed) {
  const MarkExpected has_it("kept_heirs.a_shadow_has_it");
  const Seat host = bench.seated(0), mate = bench.seated(0);
  bench.audit.say(b, 5, 77);
  bench.ready_shadow(host, 1, 77);
  lost(a);
  heirs.came_back(a.peer);
  EXPECT_FALSE(heirs.wants_back(StageId{0}));
  lost(mate);
  ASSERT_TRUE(heirs.await(lost(b)));
  heirs.came_back(b.peer);
  EXPECT_FALSE(is_gone());
  EXPECT_TRUE(heirs.wants_back(StageId{0}));
  EXPECT_TRUE(heirs.wants_back(StageId{1})) << "nobody serves it";
  wire::Hello hello;
  *hello.mutable_previous() = to_wire(mate);
  hello.set_address(bench.members.at(mate.peer).address);
  hello.mutable_kept()->set_stage(0);
  hello.mutable_kept()->set_version(5);
  heirs.came_back(bench.members.join(hello, StageId{0})->peer);
  EXPECT_FALSE(is_gone());
  EXPECT_TRUE(bench.takeovers.is_emptied(StageId{1}));
  EXPECT_FALSE(heirs.any());
}

TEST_F(Heirs, AShadowThatNobodyWillFreeIsNotWaitedFor) {
  const Seat host = bench.seated(0), mate = bench.seated(0);
  bench.audit.say(b, 5, 77);
  bench.ready_shadow(host, 1, 77);
  lost(a);
  heirs.came_back(a.peer);
  lost(mate);
  heirs.came_back(mate.peer);
  EXPECT_FALSE(heirs.await(lost(b)));
}

TEST_F(Heirs, AJoinerWhoseFetchIsBrokenIsNone) {
  const Seat joiner = bench.seated(1);
  bench.members.become(joiner.peer, MemberState::kBuilding);
  bench.states.want(joiner);
  bench.states.freeze();
  ASSERT_TRUE(bench.members.follows(joiner));
  lost(a);
  ASSERT_TRUE(heirs.await(lost(b)));
  heirs.came_back(a.peer);
  heirs.came_back(b.peer);
  EXPECT_FALSE(is_gone()) << "it may have all of it";
  bench.states.want(joiner);
  EXPECT_TRUE(is_gone());
}

TEST_F(Heirs, ACommitMakesEveryCopyOld) {
  lost(a);
  bench.committed(6);
  heirs.on_retired({PhaseKind::kTrain, 5});
  EXPECT_FALSE(heirs.await(lost(b)));
}

// ---- What it begins with ------------------------------------------------------------------------

TEST_F(Heirs, WhoeverKeptTheCommittedVersionIsToBeginWithIt) {
  lost(a);
  lost(b);
  const Seat heir = back(a, 5), other = back(b, 4);
  FakeSession& session = bench.peers[heir];
  bench.sessions.add(session.session);
  bench.sessions.seat(session.session, heir);
  const MarkExpected offered("state_transfer.kept_offered");
  bench.states.want(heir);
  bench.states.want(other);
  bench.states.freeze();
  EXPECT_TRUE(bench.members.follows(heir));
  EXPECT_FALSE(bench.members.follows(other)) << "nobody has what it needs";
  const auto offers = bench.told<wire::StateOffer>(heir, MessageKind::kStateOffer);
  ASSERT_EQ(offers.size(), 1U);
  EXPECT_TRUE(offers[0].kept());
  EXPECT_EQ(offers[0].version(), 5U);
  bench.states.want(heir);
  bench.states.freeze();
  EXPECT_EQ(bench.count(heir, MessageKind::kStateOffer), 1U) << "it had lost its copy";
}

}  // namespace
}  // namespace swarmline
