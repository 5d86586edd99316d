#include "pipeline/coordinator/members/failure_detector.h"

#include <gtest/gtest.h>

#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

Instant at(Duration since_start) {
  return Instant(1s + since_start);
}
Seat seat_of(std::uint32_t peer) {
  return {PeerId{peer}, StageId{0}, Incarnation{1}};
}

class Detector : public ::testing::Test {
 protected:
  static FailureDetector make(double silence_seconds) {
    NetSection net;
    net.heartbeat_seconds = 0.5;
    net.peer_silence_seconds = silence_seconds;
    return FailureDetector(net, 30);
  }
  const Seat a = seat_of(1), b = seat_of(2);
};

// [It has a seat, and can't be told while the journal is not written.]
TEST_F(Detector, WhoCouldNotBeToldOfItsSeatIsNotSilent) {
  FailureDetector detector = make(4);
  detector.watch(a, at(0s));
  detector.watch(b, at(0s));
  detector.heartbeat(b, 0, 0, at(1s));
  const MarkExpected not_told("failure_detector.not_told_yet");
  detector.is_held_up(at(3s));
  EXPECT_EQ(detector.silent(at(6s)), std::vector<Seat>{b});
  EXPECT_EQ(detector.silent(at(8s)), (std::vector<Seat>{a, b}));
}

TEST_F(Detector, SilenceEndsByAnyWordAndStartsOverAfterOnesOwnAbsence) {
  FailureDetector detector = make(4);
  detector.watch(a, at(0s));
  detector.watch(b, at(0s));
  EXPECT_TRUE(detector.silent(at(4s)).empty());
  detector.heard(a, at(5s));
  EXPECT_EQ(detector.silent(at(5s)), std::vector<Seat>{b});
  detector.heartbeat(b, 0, 0, at(6s));
  EXPECT_TRUE(detector.silent(at(9s)).empty());
  // A word under an old name changes nothing.
  detector.heard({b.peer, b.stage, Incarnation{7}}, at(100s));
  EXPECT_EQ(detector.silent(at(50s)), (std::vector<Seat>{a, b}));
  const MarkExpected restarted("failure_detector.deadlines_restarted");
  detector.restart_deadlines(at(60s));
  EXPECT_TRUE(detector.silent(at(64s)).empty());
  detector.forget(a.peer);
  EXPECT_EQ(detector.silent(at(90s)), std::vector<Seat>{b});
  detector.check_invariants();
}

// Heartbeats of half a second: a regular peer may be silent for little more than two seconds, one
// whose heartbeats come unevenly for longer.
TEST_F(Detector, SilenceAllowedFollowsHowEvenlyAPeerIsHeard) {
  FailureDetector detector = make(0);
  const Seat even = a, uneven = b;
  detector.watch(even, at(0s));
  detector.watch(uneven, at(0s));
  Duration now{};
  for (int i = 0; i < 40; ++i) {
    now = 500ms * i;
    detector.heartbeat(even, 0, 0, at(now));
    if (i % 3 == 0 || i % 7 == 0) detector.heartbeat(uneven, 0, 0, at(now));
  }
  detector.heartbeat(uneven, 0, 0, at(now));
  EXPECT_TRUE(detector.silent(at(now + 2100ms)).empty());
  EXPECT_EQ(detector.silent(at(now + 2300ms)), std::vector<Seat>{even});
  EXPECT_EQ(detector.silent(at(now + 11s)), (std::vector<Seat>{even, uneven}));
}

// It answers, its device has work and ends none.
TEST_F(Detector, AStuckDeviceIsSeenByJobsThatDoNotEnd) {
  FailureDetector detector = make(4);
  const Seat stuck = a, slow = b;
  for (const Seat& seat : {stuck, slow}) {
    detector.watch(seat, at(0s));
    detector.works_from(seat, at(0s));
  }
  for (int i = 0; i <= 100; ++i) {
    detector.heartbeat(stuck, 7, 2, at(1s * i));
    detector.heartbeat(slow, static_cast<std::uint64_t>(i / 50), 2, at(1s * i));
  }
  EXPECT_EQ(detector.stuck_time(), 60s) << "two hop timeouts";
  EXPECT_EQ(detector.stuck(), std::vector<Seat>{stuck});
  detector.restart_deadlines(at(100s));
  EXPECT_TRUE(detector.stuck().empty());
  // Nothing to do is no standstill.
  for (int i = 101; i < 300; ++i) detector.heartbeat(stuck, 7, 0, at(1s * i));
  EXPECT_TRUE(detector.stuck().empty());
  // Nor is a whole process that stood still.
  detector.heartbeat(stuck, 7, 1, at(300s));
  detector.heartbeat(stuck, 7, 1, at(400s));
  EXPECT_TRUE(detector.stuck().empty());
}

TEST_F(Detector, SeatsLostToAStuckDeviceAreCountedUntilAContribution) {
  FailureDetector detector = make(4);
  EXPECT_EQ(detector.count_stuck(a.peer), 1U);
  EXPECT_EQ(detector.count_stuck(a.peer), 2U);
  detector.contributed(a.peer);
  EXPECT_EQ(detector.count_stuck(a.peer), 1U);
}

TEST_F(Detector, WhereAllAreSilentItIsNotThey) {
  FailureDetector detector = make(4);
  detector.watch(a, at(0s));
  detector.watch(b, at(0s));
  detector.heard(b, at(4s));
  EXPECT_FALSE(detector.hears_nobody(detector.silent(at(5s)), at(5s))) << "b was heard";
  const MarkExpected nobody("failure_detector.hears_nobody");
  EXPECT_TRUE(detector.hears_nobody(detector.silent(at(8100ms)), at(8100ms)));
  EXPECT_FALSE(detector.hears_nobody({}, at(8s)));
}

TEST_F(Detector, ALateLookSaysThatThisProcessWasStopped) {
  FailureDetector detector = make(4);
  detector.begin(at(0s));
  const Instant next = detector.next_look(at(0s));
  EXPECT_EQ(next, at(250ms));
  EXPECT_FALSE(detector.was_stopped(next + 500ms));
  EXPECT_TRUE(detector.was_stopped(next + 501ms));
}

}  // namespace
}  // namespace swarmline
