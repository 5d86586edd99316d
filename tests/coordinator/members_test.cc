// Who comes, who is waited for, who goes: gathering, recovery, the beginning of an era, each
// without what is above it.
#include <gtest/gtest.h>

#include "pipeline/coordinator/members/gathering.h"
#include "pipeline/coordinator/members/link_probe.h"
#include "pipeline/coordinator/run/era_beginning.h"
#include "pipeline/protocol/knobs.h"
#include "sim/doors/sim_network.h"
#include "tests/coordinator/parts_bench.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

// ---- Deadlines ----------------------------------------------------------------------------------

class Deadlines : public ::testing::Test {
 protected:
  void stand_still(Duration time) {
    bench.clock.freeze(0);
    bench.clock.run_for(time);
    bench.clock.thaw(0);
  }
  PartsBench bench;
  int passed = 0;
  Deadline deadline{bench.alarms};
};

TEST_F(Deadlines, PassesOnTime) {
  deadline.arm(5s, [this] { ++passed; });
  bench.clock.run_for(5s - 1ms);
  EXPECT_EQ(passed, 0);
  bench.clock.run_for(1ms);
  EXPECT_EQ(passed, 1);
  deadline.arm(5s, [this] { ++passed; });
  deadline.cancel();
  bench.clock.run_for(10s);
  EXPECT_EQ(passed, 1);
}

// What it waits for may lie in the sockets, which are read after the timers.
TEST_F(Deadlines, OneThatFiresLateBeginsAnew) {
  const MarkExpected anew("deadline.begins_anew");
  deadline.arm(5s, [this] { ++passed; });
  stand_still(6s);
  bench.clock.run_for(5s - 1ms);
  EXPECT_EQ(passed, 0);
  bench.clock.run_for(1ms);
  EXPECT_EQ(passed, 1);
}

TEST_F(Deadlines, AProcessThatWakesJustBeforeItDoesNotJudge) {
  deadline.arm(5s, [this] { ++passed; });
  stand_still(4900ms);
  bench.alarms.stood_still();
  bench.clock.run_for(5s);
  EXPECT_EQ(passed, 0);
  bench.clock.run_for(5s);
  EXPECT_EQ(passed, 1);
}

// Timers that are always late show a machine that has too much to do, and no end of waiting.
TEST_F(Deadlines, OneThatIsLateEachTimePassesAllTheSame) {
  deadline.arm(5s, [this] { ++passed; });
  stand_still(6s);
  bench.clock.run_for(1ms);
  stand_still(6s);
  bench.clock.run_for(1ms);
  EXPECT_EQ(passed, 1);
}

// ---- Gathering ----------------------------------------------------------------------------------

class Gather : public ::testing::Test {
 protected:
  PartsBench bench;
  Gathering gathering{bench.shape,   bench.alarms, bench.events,
                      bench.members, bench.probe,  bench.rulings};
};

TEST_F(Gather, TheFirstStartWaitsForAllThatAreWanted) {
  const Seat a = bench.seated(0);
  gathering.ready(a.peer);
  EXPECT_TRUE(gathering.is_due());
  EXPECT_FALSE(gathering.may_start(true));
  EXPECT_FALSE(gathering.is_due());
  bench.clock.run_for(3600s);
  EXPECT_FALSE(bench.rulings.any()) << "it waits for as long as it takes";
  gathering.ready(bench.seated(1).peer);
  EXPECT_TRUE(gathering.may_start(true));
}

// One that builds for ever, and newcomers without end.
TEST_F(Gather, NobodyWaitsForWhoeverStillBuildsBeyondThoseWanted) {
  const MarkExpected before_all("gathering.starts_before_all_have_built");
  const auto builds = [&] {
    const Seat seat = bench.seated(0);
    bench.members.become(seat.peer, MemberState::kBuilding);
    bench.members.at(seat.peer).seated_at = bench.alarms.now();
  };
  builds();
  gathering.ready(bench.seated(0).peer);
  gathering.ready(bench.seated(1).peer);
  EXPECT_FALSE(gathering.may_start(true)) << "it belongs to the start, too";
  for (Duration waited{}; waited < knobs().gather_time; waited += 1s) {
    bench.clock.run_for(1s);
    builds();
  }
  bench.clock.run_for(1ms);
  EXPECT_TRUE(gathering.is_due());
  EXPECT_TRUE(gathering.may_start(true));
}

TEST_F(Gather, WhereAStageHasNobodyOneThatAnotherCanSpareGoesThere) {
  const Seat first = bench.seated(0), spare = bench.seated(0);
  const MarkExpected filled("gathering.stage_filled");
  EXPECT_FALSE(gathering.may_start(true));
  const auto moves = bench.rulings.take_losses();
  ASSERT_EQ(moves.size(), 1U);
  EXPECT_EQ(moves[0].seat, spare);
  EXPECT_EQ(moves[0].how, Departure::kMoves);
  bench.lost(spare);
  gathering.on_seat_lost(moves[0]);
  EXPECT_FALSE(gathering.may_start(true));
  EXPECT_FALSE(bench.rulings.any()) << "it is on its way: " << to_string(first) << " stays";
}

// Of a stage's three only the first has the data, and it would be one of the two that stay.
TEST_F(Gather, OnlyWhoHasTheDataGoesToTheStageThatReadsIt) {
  bench.members = Membership({2, 2});
  bench.seated(0);
  const Seat has = bench.seated(1), lacks = bench.seated(1);
  bench.members.at(lacks.peer).lacks_data = true;
  EXPECT_FALSE(gathering.may_start(true));
  EXPECT_FALSE(bench.rulings.any()) << "both are needed where they are";
  const Seat another = bench.seated(1);
  bench.members.at(another.peer).lacks_data = true;
  EXPECT_FALSE(gathering.may_start(true));
  const auto moves = bench.rulings.take_losses();
  ASSERT_EQ(moves.size(), 1U);
  EXPECT_EQ(moves[0].seat, has);
  bench.members.at(has.peer).lacks_data = true;
  EXPECT_FALSE(gathering.may_start(true));
  EXPECT_FALSE(bench.rulings.any()) << "none of them could serve there";
}

TEST_F(Gather, ARunThatGoesBackGoesOnWithFewerThanItWants) {
  bench.members = Membership({2, 2});
  gathering.set_trained();
  gathering.expect({PeerId{1}, PeerId{2}, PeerId{3}});
  gathering.begin("lost", 8);
  gathering.ready(bench.seated(0).peer);
  gathering.ready(bench.seated(1).peer);
  EXPECT_FALSE(gathering.may_start(false)) << "somebody who lived is still to come";
  const MarkExpected fewer("gathering.goes_on_with_fewer");
  bench.clock.run_for(knobs().gather_time + 1ms);
  EXPECT_TRUE(gathering.is_due());
  EXPECT_TRUE(gathering.may_start(false));
}

TEST_F(Gather, AStageThatNobodyJoinsEndsARunThatHasTrained) {
  gathering.set_trained();
  gathering.begin("all were lost", 8);
  bench.seated(0);
  const MarkExpected nobody("gathering.nobody_joined");
  bench.detector.begin(bench.alarms.now() + 1h);
  bench.clock.run_for(from_seconds(bench.options.config.net.peers_wait_seconds) + 6s);
  const auto sentence = bench.rulings.take_failure();
  ASSERT_TRUE(sentence.has_value());
  EXPECT_NE(sentence->find("all were lost; the run ends after step 8 because stage 1 has no peer"),
            std::string::npos);
}

// They stand still, or it is this end that reaches nobody: they are waited for, and not for ever.
TEST_F(Gather, LostPeersWhoMayLiveAreWaitedFor) {
  for (const bool refuses : {false, true}) {
    PartsBench cut_off;
    cut_off.seated(1);  // seed 760: others are there
    Gathering waiting{cut_off.shape,   cut_off.alarms, cut_off.events,
                      cut_off.members, cut_off.probe,  cut_off.rulings};
    wire::Hello hello;
    hello.set_address("sim:7");
    cut_off.members.fence(*cut_off.members.join(hello, StageId{0}));
    waiting.set_trained();
    waiting.begin("all were lost", 8);
    if (!refuses) ASSERT_TRUE(cut_off.network.node(7).listen(*parse_address("sim:7"), [](auto) {}));
    const MarkExpected nobody("gathering.hears_nobody");
    const NetSection& net = cut_off.options.config.net;
    cut_off.clock.run_for(from_seconds(net.peers_wait_seconds) + 3 * knobs().probe_time);
    EXPECT_EQ(cut_off.rulings.take_failure().has_value(), refuses);
    if (refuses) continue;
    cut_off.clock.run_for(from_seconds(net.outlast_seconds - 2 * net.peers_wait_seconds));
    EXPECT_FALSE(cut_off.rulings.any());
    cut_off.clock.run_for(from_seconds(3 * net.peers_wait_seconds));
    EXPECT_TRUE(cut_off.rulings.take_failure().has_value()) << "not for ever";
  }
}

// Over a run's life there are peers without number.
TEST_F(Gather, RemembersOfTheNewestPeersAloneThatTheyEnded) {
  for (std::uint32_t peer = 1; peer <= Gathering::kEndedMax + 100; ++peer)
    gathering.on_seat_lost({.seat = {PeerId{peer}, StageId{0}, Incarnation{1}},
                            .why = "it left",
                            .how = Departure::kLeft});
  EXPECT_EQ(gathering.ended_peers(), Gathering::kEndedMax);
}

// One that says that it ends is not waited for, though its address takes connections.
TEST_F(Gather, WhoSaidThatItEndsIsNotWaitedFor) {
  wire::Hello hello;
  hello.set_address("sim:7");
  const Seat seat = *bench.members.join(hello, StageId{0});
  bench.members.fence(seat);
  gathering.on_seat_lost({.seat = seat, .why = "it left", .how = Departure::kLeft});
  ASSERT_TRUE(bench.network.node(7).listen(*parse_address("sim:7"), [](auto) {}));
  gathering.set_trained();
  gathering.begin("all were lost", 8);
  bench.detector.begin(bench.alarms.now() + 1h);
  bench.clock.run_for(from_seconds(bench.options.config.net.peers_wait_seconds) + 6s);
  EXPECT_TRUE(bench.rulings.take_failure().has_value());
}

// ---- EraBeginning -------------------------------------------------------------------------------

TEST(EraBeginning, WithoutACheckpointItIsTheSeedsParameters) {
  PartsBench bench;
  EraBeginning beginning(bench.shape, bench.alarms, bench.outbox, bench.rulings);
  beginning.look();
  EXPECT_FALSE(beginning.take_found().has_value());
  bench.clock.run_for(1ms);
  const auto found = beginning.take_found();
  ASSERT_TRUE(found.has_value() && found->has_value());
  EXPECT_EQ(beginning.version(), 0U);
  EXPECT_TRUE(beginning.path().empty());
  EXPECT_FALSE(beginning.take_found().has_value()) << "told once";
}

TEST(EraBeginning, ErasThatGetNoFurtherWaitEverLongerAndAreCounted) {
  PartsBench bench;
  EraBeginning beginning(bench.shape, bench.alarms, bench.outbox, bench.rulings);
  EXPECT_TRUE(beginning.count_rollback(5)) << "it got further than ever";
  for (std::uint32_t times = 1; times <= knobs().fruitless_eras_max; ++times)
    EXPECT_TRUE(beginning.count_rollback(5));
  const MarkExpected pause("era_beginning.pause");
  beginning.look();
  bench.clock.run_for(knobs().era_pause_min);
  EXPECT_FALSE(beginning.take_found().has_value());
  bench.clock.run_for(knobs().era_pause_max);
  EXPECT_TRUE(beginning.take_found().has_value());
  EXPECT_FALSE(beginning.count_rollback(5));
  EXPECT_TRUE(beginning.count_rollback(6)) << "further again";
  EXPECT_EQ(beginning.furthest(), 6U);
}

TEST(EraBeginning, APieceThatItDoesNotHaveIsMissing) {
  PartsBench bench;
  const Seat a = bench.seated(0);
  EraBeginning beginning(bench.shape, bench.alarms, bench.outbox, bench.rulings);
  wire::PieceRequest request;
  request.mutable_blob()->set_saved(3);
  EXPECT_EQ(beginning.on_piece_request(bench.peers.at(a).session, request), 0U);
  const auto pieces = bench.told<wire::Piece>(a, MessageKind::kPiece);
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_TRUE(pieces[0].missing());
}

// ---- LinkProbe ----------------------------------------------------------------------------------

class Probe : public ::testing::Test {
 protected:
  // A member at an address of its own, where somebody listens or nobody does.
  Seat member_at(const std::string& address) {
    wire::Hello hello;
    hello.set_address(address);
    return *bench.members.join(hello, StageId{0});
  }
  PartsBench bench;
  SimNetwork network{bench.clock, {}};
  bool may = true;
  LinkProbe probe{network.node(0), bench.alarms, bench.members, bench.rulings,
                  [this] { return may; }};
};

TEST_F(Probe, AProcessThatIsGoneIsLost) {
  const Seat seat = member_at("sim:9");
  probe.probe(seat, "reset");
  bench.clock.run_for(10s);
  const auto losses = bench.rulings.take_losses();
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].why, "reset");
  EXPECT_FALSE(bench.rulings.take_self_restart().has_value());
}

// Its machine may be out of reach for a while: its silence is what counts.
TEST_F(Probe, OneThatCannotBeReachedIsNotGone) {
  const auto bound = network.node(1).listen({"sim", 0}, [](const std::shared_ptr<Connection>&) {});
  const Seat seat = member_at(to_string(*bound));
  bench.clock.freeze(1);
  const MarkExpected not_reached("link_probe.not_reached");
  probe.probe(seat, "reset");
  bench.clock.run_for(10s);
  EXPECT_FALSE(bench.rulings.any());
}

TEST_F(Probe, OneThatLivesIsNoLossOfItsStage) {
  std::vector<std::shared_ptr<Connection>> taken;
  const auto bound =
      network.node(1).listen({"sim", 0}, [&](std::shared_ptr<Connection> connection) {
        connection->start({.on_frame = [](Frame) {}, .on_closed = [](const Error&) {}});
        taken.push_back(std::move(connection));
      });
  ASSERT_TRUE(bound.has_value()) << bound.error().what;
  const Seat seat = member_at(to_string(*bound));
  const MarkExpected lives("link_probe.lives");
  probe.probe(seat, "reset");
  bench.clock.run_for(2s);
  const auto restart = bench.rulings.take_self_restart();
  ASSERT_TRUE(restart.has_value());
  EXPECT_NE(restart->why.find("the last of its stage and lives"), std::string::npos);
  may = false;
  probe.probe(seat, "reset");
  bench.clock.run_for(2s);
  EXPECT_EQ(bench.rulings.take_losses().size(), 1U) << "it has begun again too often";
}

}  // namespace
}  // namespace swarmline
