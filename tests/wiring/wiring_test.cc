#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "base/limits.h"
#include "pipeline/wiring/static_wiring.h"
#include "pipeline/wiring/wiring_router.h"
#include "tests/harness/all_marks_hit.h"

namespace swarmline {
namespace {

[[maybe_unused]] const auto* const kAllMarks = expect_all_marks("wiring.");

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr PeerId kA{1};
constexpr PeerId kB{2};
constexpr PeerId kC{3};
constexpr ServicePrior kTenMs{milliseconds(10), milliseconds(20)};

MicrobatchId train(std::uint32_t index) {
  return {{PhaseKind::kTrain, 1}, index};
}
MicrobatchId eval(std::uint32_t index) {
  return {{PhaseKind::kEval, 1}, index};
}

// One microbatch through its whole life; {} when nobody took it.
std::optional<PeerId> hop(Wiring& wiring, std::map<PeerId, Duration> forward = {}) {
  const auto peer = wiring.pick(train(0), {});
  if (!peer) return peer;
  const Duration service = forward.contains(*peer) ? forward.at(*peer) : milliseconds(10);
  wiring.on_sent(*peer, Duration::zero());
  wiring.on_forward_done(*peer, service);
  wiring.on_backward_done(*peer, 2 * service);
  wiring.on_settled(*peer);
  return peer;
}

std::map<PeerId, int> hops(Wiring& wiring, int count, std::map<PeerId, Duration> forward = {}) {
  std::map<PeerId, int> taken;
  for (int i = 0; i < count; ++i) {
    if (const auto peer = hop(wiring, forward)) ++taken[*peer];
  }
  return taken;
}

PeerShare share_of(const Wiring& wiring, PeerId peer) {
  for (const PeerShare& share : wiring.shares()) {
    if (share.peer == peer) return share;
  }
  ADD_FAILURE() << "peer " << peer.value << " is no candidate";
  return {};
}

TEST(WiringRouterTest, NobodyToPick) {
  WiringRouter router({});
  EXPECT_EQ(router.pick(train(0), {}), std::nullopt);
  router.add(kA, kTenMs);
  EXPECT_EQ(router.pick(train(0), {kA}), std::nullopt);
  EXPECT_EQ(router.pick(train(0), {}), kA);
}

TEST(WiringRouterTest, EqualPeersTakeTurns) {
  WiringRouter router({});
  router.add(kA, kTenMs);
  router.add(kB, kTenMs);
  EXPECT_EQ(hops(router, 100), (std::map<PeerId, int>{{kA, 50}, {kB, 50}}));
}

TEST(WiringRouterTest, AWeightCountsLikeSpeed) {
  WiringRouter router({});
  router.add(kA, kTenMs);
  router.add(kB, kTenMs);
  router.set_weight(kB, 3);
  EXPECT_EQ(hops(router, 100), (std::map<PeerId, int>{{kA, 25}, {kB, 75}}));
  router.set_weight(kB, 1);
  std::map<PeerId, int> taken = hops(router, 100);
  EXPECT_NEAR(taken[kA], 50, 2);
}

TEST(WiringRouterTest, WhoIsHardlyWeighedIsThereWhenTheOthersAreNot) {
  WiringRouter router({});
  router.add(kA, kTenMs);
  router.add(kB, kTenMs);
  router.set_weight(kB, 1 / kSendWeightMax);
  std::map<PeerId, int> taken = hops(router, 130);
  EXPECT_NEAR(taken[kB], 2, 1);
  router.on_full(kA);
  EXPECT_EQ(hop(router), kB);
  router.on_credit(kA);
  EXPECT_EQ(hop(router), kA);
  // What it was ahead by is forgotten with the weight.
  router.set_weight(kB, 1);
  taken = hops(router, 100);
  EXPECT_NEAR(taken[kB], 50, 2);
}

TEST(WiringRouterTest, ChargesAtPickSoThatABurstIsSpreadBeforeAnyAnswer) {
  WiringRouter router({.in_flight_max = 64, .warmup_in_flight = 64});
  router.add(kA, {milliseconds(10), milliseconds(20)});
  router.add(kB, {milliseconds(30), milliseconds(60)});
  std::map<PeerId, int> taken;
  for (int i = 0; i < 40; ++i) ++taken[*router.pick(train(0), {})];
  EXPECT_EQ(taken, (std::map<PeerId, int>{{kA, 30}, {kB, 10}}));
}

TEST(WiringRouterTest, ExcludedPeersArePassedOver) {
  WiringRouter router({});
  router.add(kA, kTenMs);
  router.add(kB, kTenMs);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(router.pick(train(0), {kA}), kB);
    router.on_forward_done(kB, milliseconds(10));
    router.on_settled(kB);
  }
}

TEST(WiringRouterTest, SendersBreakTiesDifferently) {
  std::map<PeerId, int> first;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    WiringRouter router({.seed = seed});
    for (const PeerId peer : {kA, kB, kC}) router.add(peer, kTenMs);
    ++first[*router.pick(train(0), {})];
  }
  for (const PeerId peer : {kA, kB, kC}) EXPECT_GT(first[peer], 8) << peer.value;
}

TEST(WiringRouterTest, WhatIsLateGoesWhereItEndsFirst) {
  WiringRouter router({.warmup_in_flight = 8});
  router.add(kA, kTenMs);
  router.add(kB, {milliseconds(25), milliseconds(50)});
  std::map<PeerId, int> taken;
  for (int i = 0; i < 4; ++i) ++taken[*router.pick_soonest(train(0), {})];
  EXPECT_EQ(taken[kA], 3) << "30, 60, then B's 75 before A's 90, then 90";
  EXPECT_EQ(router.pick_soonest(train(0), {kA}), kB);
  EXPECT_EQ(router.pick_soonest(train(0), {kA, kB}), std::nullopt);
  // It is work like any other: what it took is not given to it again by its share.
  EXPECT_EQ(share_of(router, kA).picks, 3U);
  EXPECT_EQ(share_of(router, kB).in_flight, 2U);
}

TEST(WiringRouterTest, InFlightIsCapped) {
  WiringRouter router({.in_flight_max = 3, .warmup_in_flight = 3});
  router.add(kA, kTenMs);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(router.pick(train(0), {}), kA);
  EXPECT_EQ(router.pick(train(0), {}), std::nullopt);
  router.on_settled(kA);
  EXPECT_EQ(router.pick(train(0), {}), kA);
  EXPECT_EQ(share_of(router, kA).in_flight, 3U);
}

TEST(WiringRouterTest, AJoinerWarmsUpWithFewMicrobatches) {
  WiringRouter router({.in_flight_max = 8, .warmup_in_flight = 2, .warmup_samples = 3});
  router.add(kA, kTenMs);
  EXPECT_TRUE(router.pick(train(0), {}));
  EXPECT_TRUE(router.pick(train(0), {}));
  EXPECT_FALSE(router.pick(train(0), {}));
  for (int i = 0; i < 3; ++i) router.on_forward_done(kA, milliseconds(10));
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(router.pick(train(0), {}));
  EXPECT_FALSE(router.pick(train(0), {}));
}

TEST(WiringRouterTest, AJoinerDoesNotDrawARush) {
  WiringRouter router({});
  router.add(kA, kTenMs);
  router.add(kB, kTenMs);
  hops(router, 1000);
  router.add(kC, kTenMs);
  const auto taken = hops(router, 30);
  EXPECT_NEAR(taken.at(kC), 10, 1);
}

TEST(WiringRouterTest, AJoinerIsNotHeldBackByAnothersStall) {
  WiringRouter router({});
  router.add(kA, kTenMs);
  router.add(kB, kTenMs);
  hops(router, 100);
  router.on_timeout(kB, seconds(60));
  router.on_heard(kB);
  router.add(kC, kTenMs);
  EXPECT_NEAR(hops(router, 100).at(kC), 50, 2);
}

TEST(WiringRouterTest, UnknownPeersCountAsTheMedianOfTheOthers) {
  WiringRouter router({});
  EXPECT_TRUE(router.add(kC, {}));
  EXPECT_EQ(share_of(router, kC).expected_forward, WiringRouter::kUnknownService);
  router.add(kA, {milliseconds(5), milliseconds(9)});
  router.add(kB, {milliseconds(40), milliseconds(80)});
  router.add(PeerId(4), {milliseconds(7), milliseconds(14)});
  EXPECT_EQ(share_of(router, kC).expected_forward, milliseconds(7));
  EXPECT_EQ(share_of(router, kC).expected_backward, milliseconds(14));
  EXPECT_EQ(share_of(router, kA).expected_backward, milliseconds(9));
}

TEST(WiringRouterTest, AveragesAreBiasCorrectedAndKeptApart) {
  WiringRouter router({.alpha = 0.1});
  router.add(kA, kTenMs);
  router.on_forward_done(kA, milliseconds(100));  // the first observation replaces the prior
  router.on_backward_done(kA, milliseconds(300));
  EXPECT_NEAR(to_seconds(share_of(router, kA).expected_forward), 0.1, 1e-9);
  EXPECT_NEAR(to_seconds(share_of(router, kA).expected_backward), 0.3, 1e-9);
  router.on_forward_done(kA, milliseconds(200));
  // (0.9 * 0.1 * 100 + 0.1 * 200) / (1 - 0.9^2)
  EXPECT_NEAR(to_seconds(share_of(router, kA).expected_forward), 0.029 / 0.19, 1e-8);
  EXPECT_NEAR(to_seconds(share_of(router, kA).expected_backward), 0.3, 1e-9);
}

TEST(WiringRouterTest, ASlowLinkCountsAsASlowPeer) {
  WiringRouter router({});
  router.add(kA, kTenMs);
  router.add(kB, kTenMs);
  router.on_sent(kB, milliseconds(90));  // 10 + 20 ms of compute hide behind the link
  const auto taken = hops(router, 400);
  EXPECT_NEAR(taken.at(kA), 300, 3);
  EXPECT_NEAR(taken.at(kB), 100, 3);
}

TEST(WiringRouterTest, OfALinksTwoWaysTheSlowerOneCounts) {
  WiringRouter router({.in_flight_max = 64, .warmup_in_flight = 64});
  router.add(kA, kTenMs);
  router.add(kB, kTenMs);
  router.on_sent(kB, milliseconds(20));
  router.on_returned(kB, milliseconds(60));
  EXPECT_EQ(share_of(router, kB).expected_link, milliseconds(60));
  EXPECT_EQ(share_of(router, kA).expected_link, milliseconds(0)) << "not measured";
  const auto taken = hops(router, 300);
  EXPECT_NEAR(taken.at(kA), 200, 3);
  EXPECT_NEAR(taken.at(kB), 100, 3);
  std::map<PeerId, int> evals;  // nothing of them comes back: 10 against 20 ms
  for (int i = 0; i < 60; ++i) ++evals[*router.pick(eval(0), {})];
  EXPECT_NEAR(evals.at(kA), 40, 3);
}

TEST(WiringRouterTest, ALinkThatIsFastAgainSoonCostsNothing) {
  WiringRouter router({});
  router.add(kA, kTenMs);
  router.add(kB, kTenMs);
  router.on_sent(kB, seconds(1));
  for (int i = 0; i < 60; ++i) router.on_sent(kB, std::chrono::nanoseconds(1));
  EXPECT_NEAR(hops(router, 100).at(kB), 50, 2);
}

TEST(WiringRouterTest, ALongBacklogIsDearAndAShortOneCheap) {
  WiringRouter router({});
  for (const PeerId peer : {kA, kB, kC}) router.add(peer, kTenMs);
  EXPECT_EQ(share_of(router, kA).backlog, milliseconds(0)) << "not reported";
  for (const int above : {1, -1}) {  // as good as none
    router.on_backlog(kA, milliseconds(90 + 30 * above));
    router.on_backlog(kB, milliseconds(90));
    router.on_backlog(kC, milliseconds(90 - 30 * above));
    EXPECT_NEAR(hops(router, 300).at(kA), 100, 2);
  }
  for (const PeerId peer : {kA, kB, kC}) {
    router.remove(peer);
    router.add(peer, kTenMs);
  }
  router.on_backlog(kA, milliseconds(180));  // the median and three microbatches
  router.on_backlog(kB, milliseconds(90));
  router.on_backlog(kC, milliseconds(30));  // two below
  EXPECT_NEAR(to_seconds(share_of(router, kA).backlog), 0.18, 1e-6);
  const double shares = 1 / 1.6 + 1 + 1 / 0.7;  // 0.3 for each beyond the first
  const auto taken = hops(router, 1000);
  EXPECT_NEAR(taken.at(kA), 1000 / 1.6 / shares, 4);
  EXPECT_NEAR(taken.at(kB), 1000 / shares, 4);
  EXPECT_NEAR(taken.at(kC), 1000 / 0.7 / shares, 4);
}

TEST(WiringRouterTest, WhatIsSaidOfABacklogCountsWithinBounds) {
  WiringRouter router({});
  for (const PeerId peer : {kA, kB, kC}) router.add(peer, kTenMs);
  router.on_backlog(kA, Duration::max());
  router.on_backlog(kB, milliseconds(60));
  router.on_backlog(kC, Duration(-5));
  const double shares = 1 / WiringRouter::kPriceMax + 1 + 1 / 0.7;
  const auto taken = hops(router, 1000);
  EXPECT_NEAR(taken.at(kA), 1000 / WiringRouter::kPriceMax / shares, 4);
  EXPECT_NEAR(taken.at(kC), 1000 / 0.7 / shares, 4);
  router.on_backlog(PeerId{77}, milliseconds(30));
  router.remove(kA);
  EXPECT_NEAR(hops(router, 100).at(kB), 41, 2);
}

TEST(WiringRouterTest, EvaluationsAreChargedTheirForwardOnly) {
  WiringRouter router({.in_flight_max = 64, .warmup_in_flight = 64});
  router.add(kA, {milliseconds(10), milliseconds(1000)});
  router.add(kB, {milliseconds(10), milliseconds(1)});
  std::map<PeerId, int> taken;
  for (int i = 0; i < 40; ++i) ++taken[*router.pick(eval(0), {})];
  EXPECT_EQ(taken, (std::map<PeerId, int>{{kA, 20}, {kB, 20}}));
}

TEST(WiringRouterTest, AFullPeerIsRefundedAndLeftAloneUntilItsCredit) {
  WiringRouter router({});
  router.add(kA, kTenMs);
  router.add(kB, kTenMs);
  hops(router, 20);
  const PeerId picked = *router.pick(train(0), {});
  router.on_full(picked);
  const PeerId other = picked == kA ? kB : kA;
  EXPECT_TRUE(share_of(router, picked).full);
  EXPECT_EQ(share_of(router, picked).in_flight, 0U);
  EXPECT_EQ(share_of(router, picked).picks, 10U);
  EXPECT_EQ(router.pick(train(0), {other}), std::nullopt);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(router.pick(train(0), {}), other);
  router.on_credit(picked);
  // Three behind, and it wins ties (it was picked first): four in a row, as the refused charge was
  // given back.
  for (int i = 0; i < 4; ++i) EXPECT_EQ(router.pick(train(0), {}), picked);
  EXPECT_EQ(router.pick(train(0), {}), other);
}

TEST(WiringRouterTest, WhoHadNoRoomMakesUpAtMostOneSetOfMicrobatches) {
  WiringRouter router({.in_flight_max = 4});
  router.add(kA, kTenMs);
  router.add(kB, kTenMs);
  hops(router, 20);
  for (PeerId picked = *router.pick(train(0), {kB}); share_of(router, picked).full == false;) {
    router.on_full(picked);
  }
  hops(router, 500);
  router.on_credit(kA);
  const auto taken = hops(router, 100);
  EXPECT_LE(taken.at(kA), 50 + 4);
  EXPECT_GE(taken.at(kA), 50);
}

TEST(WiringRouterTest, ABannedPeerIsLeftAloneUntilHeard) {
  WiringRouter router({});
  router.add(kA, kTenMs);
  router.add(kB, kTenMs);
  hops(router, 20);
  router.on_timeout(kA, seconds(1));
  EXPECT_TRUE(share_of(router, kA).banned);
  EXPECT_EQ(hops(router, 10), (std::map<PeerId, int>{{kB, 10}}));
  router.on_heard(kA);
  EXPECT_FALSE(share_of(router, kA).banned);
  // One second is 33 microbatches of 30 ms; 10 went by already.
  EXPECT_EQ(hops(router, 20), (std::map<PeerId, int>{{kB, 20}}));
  EXPECT_GT(hops(router, 20)[kA], 5);
}

TEST(WiringRouterTest, AnswersAndCreditsEndABanToo) {
  WiringRouter router({});
  router.add(kA, kTenMs);
  router.on_timeout(kA, milliseconds(1));
  router.on_forward_done(kA, milliseconds(10));
  EXPECT_FALSE(share_of(router, kA).banned);
  router.on_timeout(kA, milliseconds(1));
  router.on_credit(kA);
  EXPECT_FALSE(share_of(router, kA).banned);
}

// Eight microbatches under way at one frozen peer time out together: that is one stall.
TEST(WiringRouterTest, OneStallIsChargedOnce) {
  WiringRouter once({});
  WiringRouter eight_times({});
  for (WiringRouter* router : {&once, &eight_times}) {
    router->add(kA, kTenMs);
    router->add(kB, kTenMs);
    hops(*router, 20);
  }
  once.on_timeout(kA, seconds(3));
  for (int i = 0; i < 8; ++i) eight_times.on_timeout(kA, seconds(3));
  for (WiringRouter* router : {&once, &eight_times}) router->on_heard(kA);
  EXPECT_EQ(hops(once, 300), hops(eight_times, 300));
}

TEST(WiringRouterTest, ReturningFromALongBanDrawsNoRush) {
  WiringRouter router({});
  router.add(kA, kTenMs);
  router.add(kB, kTenMs);
  hops(router, 20);
  router.on_timeout(kA, milliseconds(1));
  hops(router, 1000);
  router.on_heard(kA);
  EXPECT_NEAR(hops(router, 100)[kA], 50, 1);
}

TEST(WiringRouterTest, ReportsAreBelievedWithinBoundsOnly) {
  WiringRouter router({});
  router.add(kA, kTenMs);
  router.add(kB, kTenMs);
  router.on_forward_done(kA, Duration(-5));
  router.on_backward_done(kA, Duration::zero());
  EXPECT_GT(share_of(router, kA).expected_forward, Duration::zero());
  EXPECT_GT(share_of(router, kA).expected_backward, Duration::zero());
  router.on_forward_done(kB, Duration::max());
  EXPECT_LE(share_of(router, kB).expected_forward, std::chrono::hours(1));
}

TEST(WiringRouterTest, LateEventsOfRemovedPeersAreIgnored) {
  WiringRouter router({});
  router.add(kA, kTenMs);
  router.add(kB, kTenMs);
  router.remove(kA);
  router.on_sent(kA, milliseconds(1));
  router.on_forward_done(kA, milliseconds(1));
  router.on_backward_done(kA, milliseconds(1));
  router.on_settled(kA);
  router.on_timeout(kA, milliseconds(1));
  router.on_full(kA);
  router.on_credit(kA);
  router.on_heard(kA);
  ASSERT_EQ(router.shares().size(), 1U);
  EXPECT_EQ(router.pick(train(0), {}), kB);
}

TEST(WiringRouterTest, CandidatesAreBounded) {
  WiringRouter router({});
  StaticWiring fixed(8);
  for (int p = 1; p <= Limits::next_candidates_max; ++p) {
    EXPECT_TRUE(router.add(PeerId(static_cast<std::uint32_t>(p)), {}));
    EXPECT_TRUE(fixed.add(PeerId(static_cast<std::uint32_t>(p)), {}));
  }
  EXPECT_FALSE(router.add(PeerId(1000), {}));
  EXPECT_FALSE(fixed.add(PeerId(1000), {}));
  EXPECT_TRUE(router.add(PeerId(1), kTenMs));
}

// Cumulative times of a long run are rebased: shares stay right after days of service.
TEST(WiringRouterTest, SharesDoNotDriftOverALongRun) {
  WiringRouter router({});
  router.add(kA, {});
  router.add(kB, {});
  const std::map<PeerId, Duration> forward{{kA, seconds(100)}, {kB, seconds(300)}};
  hops(router, 40'000, forward);
  const auto taken = hops(router, 4000, forward);
  EXPECT_NEAR(taken.at(kA), 3000, 2);
}

TEST(StaticWiringTest, RoutesAreFixedByIndex) {
  StaticWiring wiring(8);
  wiring.add(kC, {});
  wiring.add(kA, {});
  wiring.add(kB, {});
  const std::vector<PeerId> order{kA, kB, kC};
  for (std::uint32_t i = 0; i < 9; ++i) EXPECT_EQ(wiring.pick(train(i), {}), order[i % 3]);
}

TEST(StaticWiringTest, WaitsForItsPeerAndPassesOverOnlyTheExcluded) {
  StaticWiring wiring(1);
  wiring.add(kA, {});
  wiring.add(kB, {});
  EXPECT_EQ(wiring.pick(train(0), {}), kA);
  EXPECT_EQ(wiring.pick(train(2), {}), std::nullopt);  // kA is at its cap, kB is another route
  EXPECT_EQ(wiring.pick(train(2), {kA}), kB);
  wiring.on_settled(kA);
  EXPECT_EQ(wiring.pick(train(2), {}), kA);
  wiring.on_full(kA);
  EXPECT_EQ(wiring.pick(train(4), {}), std::nullopt);
  wiring.on_credit(kA);
  wiring.on_timeout(kA, seconds(1));
  EXPECT_EQ(wiring.pick(train(4), {}), std::nullopt);
  wiring.on_heard(kA);
  EXPECT_EQ(wiring.pick(train(4), {}), kA);
  EXPECT_EQ(share_of(wiring, kA).picks, 2U);
  EXPECT_EQ(wiring.pick(train(0), {kA, kB}), std::nullopt);
}

}  // namespace
}  // namespace swarmline
