#include "pipeline/coordinator/members/failure_detector.h"

#include <algorithm>

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

// [Heartbeats were as far apart as a device may stand still: reign.stuck_device, seed 4725.]
TEST_F(Detector, ADeviceThatHadNothingToDoAHeartbeatBeforeIsNotStuck) {
  FailureDetector detector = make(4);
  detector.watch(a, at(0s));
  detector.works_from(a, at(0s));
  detector.heartbeat(a, 7, 0, at(100s));
  detector.heartbeat(a, 7, 0, at(161s));
  detector.heartbeat(a, 7, 2, at(222s));
  EXPECT_TRUE(detector.stuck().empty());
  detector.heartbeat(a, 7, 2, at(283s));
  EXPECT_EQ(detector.stuck(), std::vector<Seat>{a});
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

TEST_F(Detector, OfPeersThatNeverCameBackTheOldestAreForgotten) {
  FailureDetector detector = make(4);
  constexpr std::uint32_t kPeers = FailureDetector::kStuckPeersMax + 10;
  for (std::uint32_t i = 1; i <= kPeers; ++i) EXPECT_EQ(detector.count_stuck(PeerId{i}), 1U);
  EXPECT_EQ(detector.stuck_peers(), FailureDetector::kStuckPeersMax);
  EXPECT_EQ(detector.count_stuck(PeerId{kPeers}), 2U);
  EXPECT_EQ(detector.count_stuck(PeerId{1}), 1U);
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

// [A stage's last peer is waited for; then the coordinator's links end, all at once.]
TEST_F(Detector, ADeafTimeIsKnownForAMomentAfterIt) {
  FailureDetector detector = make(4);
  detector.watch(a, at(0s));
  detector.watch(b, at(0s));
  EXPECT_FALSE(detector.was_deaf(at(9s))) << "who has never heard anybody may be the first";
  detector.heard(a, at(10s));
  detector.heard(b, at(12s));
  EXPECT_FALSE(detector.was_deaf(at(16s)));
  EXPECT_TRUE(detector.was_deaf(at(17s)));
  detector.heard(a, at(17s));
  detector.heartbeat(b, 0, 0, at(18s));
  EXPECT_TRUE(detector.was_deaf(at(19s))) << "whoever gave up on it dials it now";
  detector.heard(a, at(20s));
  EXPECT_FALSE(detector.was_deaf(at(21s)));
}

TEST_F(Detector, WhoHasSaidSomethingUnderItsSeatHasHeardOfIt) {
  FailureDetector detector = make(4);
  detector.watch(a, at(0s));
  detector.heard(a, at(1s));
  EXPECT_FALSE(detector.has_beaten(a)) << "it asks for a seat yet";
  detector.heartbeat(a, 0, 0, at(2s));
  EXPECT_TRUE(detector.has_beaten(a));
  EXPECT_FALSE(detector.has_beaten(b));
  Seat next = a;
  ++next.incarnation.value;
  detector.watch(next, at(3s));
  EXPECT_FALSE(detector.has_beaten(a));
  EXPECT_FALSE(detector.has_beaten(next));
}

TEST_F(Detector, WhoHasBeenSilentForLongSaysNothingOfTheOthers) {
  FailureDetector detector = make(4);
  const Seat silent_for_long = a, other = seat_of(3);
  for (const Seat& seat : {a, b, other}) detector.watch(seat, at(0s));
  detector.heartbeat(b, 0, 0, at(30s));
  detector.heartbeat(other, 0, 0, at(31s));
  ASSERT_EQ(detector.silent(at(33s)), std::vector<Seat>{silent_for_long});
  EXPECT_FALSE(detector.hears_nobody(detector.silent(at(33s)), at(33s)));
  const MarkExpected nobody("failure_detector.hears_nobody");
  ASSERT_EQ(detector.silent(at(34500ms)), (std::vector<Seat>{silent_for_long, b}));
  EXPECT_TRUE(detector.hears_nobody(detector.silent(at(34500ms)), at(34500ms)));
  detector.heartbeat(other, 0, 0, at(34s));
  EXPECT_FALSE(detector.hears_nobody(detector.silent(at(34500ms)), at(34500ms)));
}

// [Its welcome has not come: it says that it lives as often as one does who was told nothing.]
TEST_F(Detector, WhoHasNotBeatYetMayNotKnowHowOftenItIsTo) {
  FailureDetector detector = make(1);
  for (const Seat& seat : {a, b}) detector.watch(seat, at(0s));
  detector.heartbeat(b, 0, 0, at(0s));
  EXPECT_EQ(detector.silent(at(2100ms)), std::vector<Seat>{b});
  detector.heard(a, at(2s));
  EXPECT_EQ(detector.silent(at(4100ms)), std::vector<Seat>{b});
  EXPECT_EQ(detector.silent(at(4300ms)), (std::vector<Seat>{a, b}));
  detector.heartbeat(a, 0, 0, at(4300ms));
  EXPECT_EQ(detector.silent(at(5400ms)), (std::vector<Seat>{a, b})) << "now it knows";
}

TEST_F(Detector, ALateLookSaysThatThisProcessWasStopped) {
  FailureDetector detector = make(4);
  detector.begin(at(0s));
  const Instant next = detector.next_look(at(0s));
  EXPECT_EQ(next, at(250ms));
  EXPECT_FALSE(detector.was_stopped(next + 500ms));
  EXPECT_TRUE(detector.was_stopped(next + 501ms));
}

// ---- Many peers -------------------------------------------------------------------------------

TEST(HeartbeatPace, AThousandASecondAreEnoughAndFiveSecondsTheLongest) {
  const MarkExpected thinned("heartbeat_pace.thinned"), denser("heartbeat_pace.denser");
  HeartbeatPace pace(NetSection{});
  const auto with = [&](std::size_t peers) {
    pace.count(peers);
    return pace.now();
  };
  for (const std::size_t peers : {0U, 1U, 200U, 500U}) EXPECT_EQ(with(peers), 500ms) << peers;
  EXPECT_EQ(with(501), 1s);
  EXPECT_EQ(with(2000), 2s);
  EXPECT_EQ(with(4000), 4s);
  EXPECT_EQ(with(10'000), 5s) << "2000 a second";
  EXPECT_EQ(with(200), 500ms);
}

TEST(HeartbeatPace, DoesNotChangeWithEachThatComesAndGoes) {
  HeartbeatPace pace(NetSection{});
  pace.count(1001);
  for (const std::size_t peers : {1000U, 999U, 1001U, 701U, 1001U, 1500U}) {
    pace.count(peers);
    EXPECT_EQ(pace.now(), 2s) << peers;
  }
  pace.count(700);
  EXPECT_EQ(pace.now(), 1s);
  pace.count(1000);
  EXPECT_EQ(pace.now(), 1s);
}

// The config's own words bound it: a silence has two heartbeats, and who asks for few gets them.
TEST(HeartbeatPace, KeepsToTheConfig) {
  NetSection net;
  net.peer_silence_seconds = 3;
  HeartbeatPace bounded(net);
  bounded.count(10'000);
  EXPECT_EQ(bounded.now(), 1500ms);
  net = {};
  net.heartbeat_seconds = 8;
  HeartbeatPace rare(net);
  rare.count(1'000'000);
  EXPECT_EQ(rare.now(), 8s);
}

// Peers of a swarm that is asked for a heartbeat every two seconds.
class ThinDetector : public Detector {
 protected:
  static constexpr std::uint32_t kPeers = 1500;
  static constexpr Duration kPeriod = 2s;
  ThinDetector() {
    for (std::uint32_t i = 1; i <= kPeers; ++i) {
      detector_.watch(seat_of(i), at(0s));
      detector_.works_from(seat_of(i), at(0s));
    }
  }
  void beat(std::uint32_t peer, Duration when) {
    detector_.heartbeat(seat_of(peer), 0, 0, at(when));
    detector_.promises(seat_of(peer), kPeriod);
  }
  FailureDetector detector_ = make(0);
};

TEST_F(ThinDetector, AsksWhoPromisesAnotherPeriodThanTheSwarms) {
  EXPECT_EQ(detector_.asks(a, false), kPeriod);
  EXPECT_EQ(detector_.asks(a, true), std::nullopt);
  beat(1, 0s);
  EXPECT_EQ(detector_.asks(a, false), std::nullopt);
  EXPECT_EQ(detector_.asks(a, true), 500ms) << "it drains";
  EXPECT_EQ(detector_.asks(b, false), kPeriod) << "it has not heard yet";
  EXPECT_EQ(detector_.told_within(), kPeriod);
  for (std::uint32_t i = 3; i <= kPeers; ++i) detector_.forget(PeerId{i});
  EXPECT_EQ(detector_.asks(a, false), 500ms);
  EXPECT_EQ(detector_.told_within(), kPeriod) << "it beats so until it hears";
}

// Each is judged by what it promised: later than that by no more than others may be.
TEST_F(ThinDetector, NobodyIsSilentForWhatItPromised) {
  for (std::uint32_t i = 1; i <= kPeers; ++i) beat(i, i * kPeriod / kPeers);
  for (std::uint32_t i = 3; i <= kPeers; ++i) detector_.forget(PeerId{i});
  const Duration last = 2 * kPeriod / kPeers;
  EXPECT_TRUE(detector_.silent(at(3600ms)).empty());
  EXPECT_EQ(detector_.silent(at(last + 3701ms)).size(), 2U) << "two, and 3.4 heartbeats of 0.5 s";
  detector_.heartbeat(a, 0, 0, at(3s));
  detector_.promises(a, Duration{});
  EXPECT_EQ(detector_.silent(at(5300ms)), (std::vector<Seat>{a, b}));
  EXPECT_EQ(detector_.silent(at(5100ms)), std::vector<Seat>{b});
}

TEST_F(ThinDetector, NobodyPromisesForEver) {
  detector_.heartbeat(a, 0, 0, at(0s));
  detector_.promises(a, 3000s);
  const auto silent = detector_.silent(at(6701ms));
  EXPECT_NE(std::ranges::find(silent, a), silent.end());
}

TEST_F(ThinDetector, OneThatIsGoneIsNotEverybody) {
  // All at once, as after their coordinator came back, and then one is late.
  for (std::uint32_t i = 1; i <= kPeers; ++i) beat(i, 0s);
  for (std::uint32_t i = 2; i <= kPeers; ++i) beat(i, kPeriod);
  const std::vector<Seat> silent = detector_.silent(at(3900ms));
  EXPECT_EQ(silent, std::vector<Seat>{a});
  EXPECT_FALSE(detector_.hears_nobody(silent, at(3900ms)));
}

TEST_F(ThinDetector, HearsNobodyBeforeItTakesAnybodyForLost) {
  constexpr Duration kCut = 10s;
  for (Duration start{}; start < kCut; start += kPeriod)
    for (std::uint32_t i = 1; i <= kPeers; ++i)
      if (const Duration when = start + i * kPeriod / kPeers; when < kCut) beat(i, when);
  for (Duration now = kCut; now < 60s; now += 250ms) {
    const std::vector<Seat> silent = detector_.silent(at(now));
    if (silent.empty()) continue;
    EXPECT_TRUE(detector_.hears_nobody(silent, at(now)));
    EXPECT_LT(now - kCut, 3s);
    return;
  }
  FAIL() << "nobody is silent";
}

// What a heartbeat of half a second would say five times, one of two seconds says in ten.
TEST_F(ThinDetector, AStuckDeviceIsOneThatFiveHeartbeatsSayItOf) {
  NetSection net;
  FailureDetector detector(net, 0.1);
  for (std::uint32_t i = 1; i <= kPeers; ++i) detector.watch(seat_of(i), at(0s));
  detector.works_from(a, at(0s));
  for (Duration now{}; now <= 10s; now += kPeriod) {
    detector.heartbeat(a, 1, 1, at(now));
    detector.promises(a, kPeriod);
  }
  EXPECT_TRUE(detector.stuck().empty());
  detector.heartbeat(a, 1, 1, at(12s));
  EXPECT_EQ(detector.stuck(), std::vector<Seat>{a});
}

}  // namespace
}  // namespace swarmline
