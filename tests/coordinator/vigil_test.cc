// Those who alone hold a stage's state and are silent: how long they are waited for.
#include "pipeline/coordinator/members/vigil.h"

#include <gtest/gtest.h>

#include "pipeline/coordinator/run/bargain.h"
#include "sim/doors/sim_network.h"
#include "tests/coordinator/parts_bench.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

TEST(Bargain, WaitingIsWorthWhatGoingBackCosts) {
  const Duration bound = 10min;
  EXPECT_EQ(worth_waiting({.steps = 9, .step_seconds = 2, .loading = 5s}, bound), 25s);
  EXPECT_EQ(worth_waiting({.steps = 1'000'000, .step_seconds = 2, .loading = 5s}, bound), bound);
  EXPECT_EQ(worth_waiting({.steps = 0, .step_seconds = 0.5, .loading = 5s}, bound), 5500ms);
  EXPECT_EQ(worth_waiting({.steps = 9, .loading = 5s, .unmeasured = 60s}, bound), 60s);
  EXPECT_EQ(worth_waiting({.steps = 9, .step_seconds = 2, .loading = 5s}, 0s), 0s);
}

class Watch : public ::testing::Test {
 protected:
  void judge(const std::vector<Seat>& silent) { vigil.judge(silent); }
  // At an address that does not answer, nor refuse.
  Seat seated(std::uint16_t stage) {
    const Seat seat = bench.seated(stage);
    const auto bound =
        network.node(1).listen({"sim", 0}, [](const std::shared_ptr<Connection>&) {});
    bench.members.at(seat.peer).address = to_string(*bound);
    bench.clock.freeze(1);
    return seat;
  }
  PartsBench bench;
  SimNetwork network{bench.clock, {}};
  LinkProbe probe{network.node(0), bench.alarms, bench.members, bench.rulings, [] { return true; }};
  bool heir = false;
  Duration patience = 30s;
  Vigil vigil{
      {.alarms = bench.alarms,
       .detector = bench.detector,
       .members = bench.members,
       .probe = probe,
       .events = bench.events,
       .rulings = bench.rulings},
      {.has_heir = [this](StageId) { return heir; }, .patience = [this] { return patience; }}};
};

TEST_F(Watch, TheLastOnesOfAStageAreWaitedFor) {
  const Seat a = seated(0), b = seated(1), mate = seated(1);
  judge({b});
  EXPECT_EQ(bench.rulings.take_losses().size(), 1U) << "its stage has another";
  const MarkExpected waits("vigil.waits"), given_up("vigil.given_up");
  judge({b, mate});
  EXPECT_TRUE(vigil.waits_for(StageId{1}));
  bench.clock.run_for(20s);
  judge({b, mate});
  EXPECT_FALSE(bench.rulings.any()) << to_string(a);
  bench.clock.run_for(10s);
  judge({b, mate});
  EXPECT_EQ(bench.rulings.take_losses().size(), 2U);
}

TEST_F(Watch, OneThatIsHeardAgainEndsTheWait) {
  const Seat b = seated(1);
  const MarkExpected heard("vigil.heard_again");
  judge({b});
  bench.clock.run_for(20s);
  judge({});
  EXPECT_FALSE(vigil.waits_for(StageId{1}));
  bench.clock.run_for(20s);
  judge({b});
  EXPECT_FALSE(bench.rulings.any()) << "another silence is waited for anew";
}

TEST_F(Watch, WhereAnotherCanServeTheStageNobodyWaits) {
  const Seat b = bench.seated(1);
  heir = true;
  judge({b});
  EXPECT_EQ(bench.rulings.take_losses().size(), 1U);
}

TEST_F(Watch, AProcessThatIsGoneIsNotWaitedFor) {
  wire::Hello hello;
  hello.set_address("sim:9");
  const Seat b = *bench.members.join(hello, StageId{1});
  bench.members.become(b.peer, MemberState::kReady);
  bench.detector.watch(b, bench.alarms.now());
  const MarkExpected gone("link_probe.gone");
  judge({b});
  bench.clock.run_for(1s);
  EXPECT_EQ(bench.rulings.take_losses().size(), 1U);
}

}  // namespace
}  // namespace swarmline
