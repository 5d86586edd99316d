#include "pipeline/coordinator/steps/source_shares.h"

#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "tests/coordinator/parts_bench.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kPlenty = 1000;
const PeerId kFast{1}, kSlow{2}, kNew{3};

SourceShares shares_of(std::map<PeerId, double> speeds, std::uint32_t window = 16) {
  SourceShares shares(true);
  const std::uint64_t depth = window * speeds.size();
  shares.set(depth, std::move(speeds));
  return shares;
}

// As many as one source may have under way when nobody else asks.
std::uint64_t most(const SourceShares& shares, PeerId source, std::uint64_t left) {
  std::uint64_t under_way = 0;
  while (under_way < left && shares.may_have_another(shares.share_of(source), under_way, left))
    ++under_way;
  return under_way;
}

TEST(SourceShares, EqualSourcesHaveTheirWindowEach) {
  const SourceShares shares = shares_of({{kFast, 2}, {kSlow, 2}});
  EXPECT_EQ(most(shares, kFast, kPlenty), 16U);
  EXPECT_EQ(most(shares, kSlow, kPlenty), 16U);
}

TEST(SourceShares, WindowsGoBySpeed) {
  const SourceShares shares = shares_of({{kFast, 3}, {kSlow, 1}});
  EXPECT_EQ(most(shares, kFast, kPlenty), 24U);
  EXPECT_EQ(most(shares, kSlow, kPlenty), 8U);
}

TEST(SourceShares, ASourceWithoutASpeedCountsAsTheOthersDo) {
  const SourceShares shares = shares_of({{kFast, 3}, {kSlow, 1}, {kNew, 0}});
  EXPECT_EQ(most(shares, kNew, kPlenty), 16U);
  EXPECT_EQ(most(shares_of({{kFast, 0}, {kSlow, 0}}), kSlow, kPlenty), 16U);
}

TEST(SourceShares, WhatIsLeftOfAStepIsSharedInTheSameWay) {
  const SourceShares shares = shares_of({{kFast, 3}, {kSlow, 1}});
  EXPECT_EQ(most(shares, kFast, 12), 9U);
  EXPECT_EQ(most(shares, kSlow, 12), 3U);
  EXPECT_EQ(most(shares, kSlow, 1), 1U) << "whoever has nothing may have one";
  EXPECT_EQ(most(shares, kSlow, 0), 0U);
}

// Else leases would wait for somebody who never asks.
TEST(SourceShares, WhileSomethingCanBeLeasedSomebodyMayHaveIt) {
  const std::vector<double> speeds = {1, 3, 7.5, 0, 0.1};
  std::map<PeerId, double> all;
  for (std::size_t i = 0; i < speeds.size(); ++i)
    all[PeerId{static_cast<std::uint32_t>(i)}] = speeds[i];
  const SourceShares shares = shares_of(all, 100);
  for (std::uint64_t left = 1; left < 200; ++left) {
    std::map<PeerId, std::uint64_t> under_way;
    for (std::uint64_t given = 0; given < left; ++given) {
      bool any = false;
      for (const auto& [peer, speed] : all) {
        if (!shares.may_have_another(shares.share_of(peer), under_way[peer], left)) continue;
        ++under_way[peer];
        any = true;
        break;
      }
      ASSERT_TRUE(any) << given << " of " << left;
    }
  }
}

TEST(SourceShares, NobodyWhoTakesNoLeasesHasAShare) {
  const SourceShares shares = shares_of({{kFast, 1}});
  EXPECT_EQ(shares.share_of(kSlow), 0);
  EXPECT_FALSE(shares.may_have_another(shares.share_of(kSlow), 0, kPlenty));
}

TEST(SourceShares, FixedRoutesHaveNone) {
  const SourceShares shares(false);
  EXPECT_FALSE(shares.on());
  EXPECT_TRUE(shares.may_have_another(shares.share_of(kSlow), kPlenty, 1));
}

// ---- As leases use them -------------------------------------------------------------------------

constexpr std::uint32_t kMicrobatches = 24;

CoordinatorOptions options_with(WiringKind wiring) {
  CoordinatorOptions options = bench_options(2, kMicrobatches);
  options.config.pipeline.peers = {2, 1};
  options.config.pipeline.wiring = wiring;
  return options;
}

struct TwoSources {
  explicit TwoSources(WiringKind wiring = WiringKind::kStochastic) : bench(options_with(wiring)) {
    bench.members.measured(fast, /*busy_ns=*/1'000'000, 1);
    bench.members.measured(slow, /*busy_ns=*/3'000'000, 1);
    bench.open_step(0);
  }
  std::uint32_t leased(const Seat& seat) {
    std::uint32_t count = 0;
    for (const auto& leases : bench.told<wire::Leases>(seat, MessageKind::kLeases))
      count += static_cast<std::uint32_t>(leases.leases_size());
    return count;
  }
  PartsBench bench;
  const Seat fast = bench.seated(0), slow = bench.seated(0), last = bench.seated(1);
};

TEST(LeasesByShare, AtAStepsEndTheSlowSourceGetsNoMoreThanItsShare) {
  TwoSources swarm;
  swarm.bench.leases.want(swarm.slow, kMicrobatches, 0);
  swarm.bench.leases.want(swarm.fast, kMicrobatches, 0);
  swarm.bench.leases.pump();
  EXPECT_EQ(swarm.leased(swarm.slow), 3U) << "a quarter of two sources' windows, which are 6 each";
  EXPECT_EQ(swarm.leased(swarm.fast), 9U);
  swarm.bench.leases.want(swarm.fast, 2 * kMicrobatches, 9);
  swarm.bench.leases.pump();
  EXPECT_EQ(swarm.leased(swarm.fast), 18U);
  swarm.bench.leases.want(swarm.fast, 3 * kMicrobatches, 16);
  swarm.bench.leases.want(swarm.slow, 2 * kMicrobatches, 1);
  swarm.bench.leases.pump();
  EXPECT_EQ(swarm.leased(swarm.slow), 3U) << "of 7 that are left it has 2";
  EXPECT_EQ(swarm.leased(swarm.fast), 21U);
}

TEST(LeasesByShare, WhoeverIsAloneGetsAllThatIsLeft) {
  TwoSources swarm;
  swarm.bench.leases.want(swarm.slow, kMicrobatches, 0);
  swarm.bench.leases.want(swarm.fast, 1, 0);
  swarm.bench.leases.pump();
  const SeatLoss loss = swarm.bench.lost(swarm.fast);
  swarm.bench.leases.on_seat_lost(loss);
  swarm.bench.phases.on_seat_lost(loss);
  swarm.bench.leases.pump();
  EXPECT_EQ(swarm.leased(swarm.slow), 6U) << "one source's window";
}

TEST(LeasesByShare, WhoeverSaysItIsDoneWithMoreThanItHadGetsNoMoreThanItWants) {
  TwoSources swarm;
  swarm.bench.leases.want(swarm.slow, 5, 1000);
  swarm.bench.leases.want(swarm.fast, kMicrobatches, 0);
  swarm.bench.leases.pump();
  EXPECT_EQ(swarm.leased(swarm.slow), 5U);
  EXPECT_EQ(swarm.leased(swarm.fast), 9U);
}

// Two sources and one last peer: what a step without any time on links needs is 2.5 for each.
TEST(LeasesByShare, AfterAStepAsManyAreUnderWayAsItsRoundTripsNeed) {
  TwoSources swarm;
  swarm.bench.members.measured(swarm.last, /*busy_ns=*/1'000'000, 1);
  swarm.bench.leases.want(swarm.fast, 1, 0);
  swarm.bench.leases.pump();
  swarm.bench.clock.run_for(std::chrono::milliseconds(1));
  swarm.bench.leases.want(swarm.fast, 1, 1);
  swarm.bench.leases.on_retired({PhaseKind::kTrain, 99});
  swarm.bench.leases.want(swarm.fast, kMicrobatches, 1);
  swarm.bench.leases.want(swarm.slow, kMicrobatches, 0);
  swarm.bench.leases.pump();
  EXPECT_EQ(swarm.leased(swarm.fast) - 1 + swarm.leased(swarm.slow), 8U) << "7.5, by shares";
}

TEST(LeasesByShare, FixedRoutesTakeTurns) {
  TwoSources swarm(WiringKind::kStatic);
  swarm.bench.leases.want(swarm.slow, kMicrobatches, 0);
  swarm.bench.leases.want(swarm.fast, kMicrobatches, 0);
  swarm.bench.leases.pump();
  EXPECT_EQ(swarm.leased(swarm.slow), kMicrobatches / 2);
}

TEST(LeasesByShare, ANewTermKnowsWhatIsUnderWay) {
  TwoSources swarm;
  swarm.bench.leases.restore(swarm.fast, {.wanted = 30, .granted = 20, .finished = 20});
  swarm.bench.leases.restore(swarm.slow, {.wanted = 30, .granted = 20, .finished = 18});
  swarm.bench.leases.pump();
  EXPECT_EQ(swarm.leased(swarm.fast), 9U);
  EXPECT_EQ(swarm.leased(swarm.slow), 1U);
}

}  // namespace
}  // namespace swarmline
