// What the comparison page says, on a small scale: the order of the systems, not their figures.
#include <gtest/gtest.h>

#include "bench/compare/reference_wiring.h"
#include "bench/compare/sim_run.h"

namespace swarmline::bench {
namespace {

using namespace std::chrono_literals;

SimPlan plan_of(Rule rule) {
  SimPlan plan;
  plan.rule = rule;
  plan.peers = {3, 3, 3};
  plan.devices = equal_devices(3, 3, {20ms, 40ms, 0});
  plan.microbatches = 96;
  plan.steps = 3;
  plan.wire = 5ms;
  plan.in_flight_per_peer = 32;
  return plan;
}

double slowdown(Rule rule) {
  SimPlan plan = plan_of(rule);
  plan.devices = equal_devices(3, 3, {100ms, 200ms, 0});
  const double without = run_simulated(plan).batch_seconds;
  plan.latency_min = 50ms;
  plan.latency_max = 150ms;
  return run_simulated(plan).batch_seconds / without;
}

TEST(Compare, SamePlanSameFigures) {
  SimPlan plan = plan_of(Rule::kSwarm);
  plan.latency_max = 10ms;
  const SimMeasured one = run_simulated(plan), again = run_simulated(plan);
  EXPECT_EQ(one.batch_seconds, again.batch_seconds);
  EXPECT_EQ(one.round_trips, again.round_trips);
  plan.seed = 2;
  EXPECT_NE(run_simulated(plan).round_trips, one.round_trips);
}

TEST(Compare, ADeviceThatIsNeverIdleBoundsEveryRule) {
  for (const Rule rule : {Rule::kSwarm, Rule::kGPipe, Rule::k1F1B, Rule::kReference}) {
    const SimPlan plan = plan_of(rule);
    const SimMeasured run = run_simulated(plan);
    const double least = plan.microbatches * 0.06 / 3;
    EXPECT_GT(run.batch_seconds, least) << name_of(rule);
    EXPECT_LT(run.batch_seconds, 1.6 * least) << name_of(rule);
    EXPECT_GT(run.step_seconds, run.batch_seconds);
    EXPECT_EQ(run.round_trips.size(), 2 * 96U) << "every microbatch of the measured steps";
    // Four hops of a tensor, and all the work of two stages; but of a backward that is not whole,
    // as those of fixed orders are, only the half that others wait for.
    const bool whole = rule == Rule::kGPipe || rule == Rule::k1F1B;
    EXPECT_GE(run.quantile(0), 2 * (whole ? 0.06 : 0.04) + 4 * 0.005) << name_of(rule);
  }
}

TEST(Compare, LatencyHurtsOneForwardOneBackwardMost) {
  const double swarm = slowdown(Rule::kSwarm), late = slowdown(Rule::k1F1B);
  EXPECT_LT(swarm, 1.3);
  EXPECT_GT(late, 1.1 * swarm);
}

TEST(Compare, FixedRoutesWaitForAStragglerOursDoNot) {
  double rates[2];
  for (const Rule rule : {Rule::kSwarm, Rule::kGPipe}) {
    SimPlan plan = plan_of(rule);
    plan.devices[1][2] = {200ms, 400ms, 0};
    const SimMeasured run = run_simulated(plan);
    const double share = run.shares[1][2];
    if (rule == Rule::kSwarm) {
      EXPECT_NEAR(share, 0.1 / 2.1, 0.02);
    } else {
      EXPECT_NEAR(share, 1.0 / 3, 1e-9);
    }
    rates[rule == Rule::kSwarm ? 0 : 1] = plan.microbatches / run.batch_seconds;
  }
  EXPECT_GT(rates[0], 3 * rates[1]);
}

TEST(ReferenceWiring, ChargesThreeAndAHalfUnitsOfTheAverageWallTime) {
  ReferenceWiring wiring(1);
  const PeerId quick{1}, slow{2}, late{3};
  wiring.add(quick, {});
  wiring.add(slow, {});
  wiring.observe(quick, 1, 1);
  wiring.observe(slow, 10, 2.5);  // four times slower
  int picks[4] = {};
  for (std::uint32_t i = 0; i < 500; ++i) ++picks[wiring.pick({}, {})->value];
  EXPECT_NEAR(picks[1], 400, 2);
  wiring.add(late, {});  // at the least cumulative time
  wiring.on_full(late);
  for (std::uint32_t i = 0; i < 50; ++i) EXPECT_NE(wiring.pick({}, {})->value, 3U);
  wiring.on_credit(late);
  EXPECT_EQ(wiring.pick({}, {quick, slow}), late);
  EXPECT_FALSE(wiring.pick({}, {quick, slow, late}).has_value());
}

}  // namespace
}  // namespace swarmline::bench
