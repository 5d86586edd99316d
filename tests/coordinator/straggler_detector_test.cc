// What is leased a second time at the end of a step that somebody holds up.
#include "pipeline/coordinator/steps/straggler_detector.h"

#include <gtest/gtest.h>

#include "tests/coordinator/parts_bench.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kMicrobatches = 4;

CoordinatorOptions options_with(double hedge_share) {
  CoordinatorOptions options = bench_options(2, kMicrobatches);
  options.config.wiring.hedge_share = hedge_share;
  return options;
}

// One that says of each of these that it is computed.
wire::Report report_of(const Phase& phase, const std::vector<std::uint32_t>& indices) {
  wire::Report report;
  *report.mutable_phase() = to_wire(phase);
  for (const std::uint32_t index : indices) report.add_contributions()->set_index(index);
  return report;
}

// Three steps went as usual; the reports of the fourth pause, and somebody has room.
class HeldUp {
 public:
  explicit HeldUp(double hedge_share) : bench(options_with(hedge_share)) {
    bench.life.move_to(life::Training{});
    for (std::uint64_t step = 0; step < 3; ++step) {
      const Phase phase = open(step);
      for (std::uint32_t index = 0; index < 3; ++index) {
        bench.clock.run_for(100ms);
        stragglers.on_report(report_of(phase, {index}));
      }
      bench.complete_step(step);
      stragglers.on_report(report_of(phase, {3}));
      bench.ledger.abandon(phase);
      bench.phases.on_retired(phase);
      stragglers.on_retired(phase);
    }
    stragglers.on_report(report_of(open(3), {0}));
    bench.leases.want(idle, kMicrobatches, 0);
  }

  std::size_t leased_again() {
    std::size_t count = 0;
    for (const wire::Leases& leases : bench.told<wire::Leases>(idle, MessageKind::kLeases))
      count += static_cast<std::size_t>(leases.leases_size());
    return count;
  }

  PartsBench bench;
  RunStats stats{2};
  StragglerDetector stragglers{bench.shape,  bench.alarms, bench.life, bench.ledger,
                               bench.phases, bench.leases, stats};
  const Seat source = bench.seated(0), last = bench.seated(1), idle = bench.seated(0);

 private:
  Phase open(std::uint64_t step) {
    bench.open_step(step);
    bench.leases.want(source, kMicrobatches * (step + 1), kMicrobatches * step);
    bench.leases.pump();
    return {PhaseKind::kTrain, step};
  }
};

TEST(StragglerDetector, AStepWhoseReportsPauseForLongIsBackedUp) {
  HeldUp run(1);
  const MarkExpected backed_up("straggler_detector.backed_up");
  run.bench.clock.run_for(1s);
  EXPECT_EQ(run.leased_again(), kMicrobatches);
  run.bench.clock.run_for(5s);
  EXPECT_EQ(run.bench.count(run.idle, MessageKind::kLeases), 1U) << "each microbatch once";
  run.stats.on_commit({.step = 3}, 0, {}, run.bench.clock.now());
  EXPECT_EQ(run.stats.totals().second_tries, kMicrobatches);
}

// Who is slow reports often enough that no pause is long, and is waited for all the same.
TEST(StragglerDetector, WhatHasBeenOutForLongIsBackedUpThoughReportsCome) {
  HeldUp run(1);
  const MarkExpected out_for_long("straggler_detector.out_for_long");
  const Phase phase{PhaseKind::kTrain, 3};
  const auto reports_come_for = [&](Duration time) {
    for (Duration passed{}; passed < time; passed += 100ms) {
      run.bench.clock.run_for(100ms);
      run.stragglers.on_report(report_of(phase, {0}));
    }
  };
  reports_come_for(400ms);  // usually all are here after 300
  EXPECT_EQ(run.leased_again(), 0U);
  reports_come_for(200ms);
  EXPECT_EQ(run.leased_again(), kMicrobatches);
  reports_come_for(5s);
  EXPECT_EQ(run.leased_again(), kMicrobatches) << "each microbatch once";
}

// Three steps of four microbatches earn three tries at a share of a quarter.
TEST(StragglerDetector, NoMoreIsLeasedAgainThanTheBudgetHas) {
  HeldUp run(0.25);
  const MarkExpected spent("straggler_detector.hedges_spent");
  run.bench.clock.run_for(5s);
  EXPECT_EQ(run.leased_again(), 3U);
}

TEST(StragglerDetector, WhatPeersHaveTriedEarlyIsTakenFromTheBudget) {
  HeldUp run(0.25);
  wire::Reduced reduced;
  reduced.mutable_boundary()->set_early_tries(2);
  run.stragglers.on_reduced(reduced);
  run.bench.clock.run_for(5s);
  EXPECT_EQ(run.leased_again(), 1U);
}

TEST(StragglerDetector, WithoutABudgetNothingIsLeasedAgain) {
  HeldUp run(0);
  run.bench.clock.run_for(60s);
  EXPECT_EQ(run.leased_again(), 0U);
}

}  // namespace
}  // namespace swarmline
