// `swarmline fleet plan`'s model against whole swarms in virtual time, the real protocol:
// step times within kTolerance, for equal and unequal peers, fast and slow links, latencies.
#include "tools/predict/fleet_prediction.h"

#include <cstdio>

#include <gtest/gtest.h>

#include "balancer/cut.h"
#include "bench/compare/sim_run.h"

namespace swarmline::bench {
namespace {

using namespace std::chrono_literals;

constexpr double kTolerance = 0.12;

// The same fleet for the model: a class for each device of a stage.
FleetQuestion question_of(const SimPlan& plan) {
  FleetQuestion question;
  question.config = config_of(plan);
  question.model = *resolve_model(question.config, SimClusterOptions{}.vocab);
  const ModelCosts costs = model_costs(question.model);
  std::size_t peers = 0;
  for (const auto& stage : plan.devices) peers += stage.size();
  const auto bytes =
      static_cast<double>(std::uint64_t{question.model.sequence} * question.model.hidden_width() *
                          size_bytes(question.model.shape.dtype));
  const auto stages = static_cast<std::uint32_t>(plan.peers.size());
  for (std::uint32_t s = 0; s < stages; ++s) {
    auto& seats = question.seats.emplace_back(peers, 0);
    const StageSpec spec{.stage = StageId(static_cast<std::uint16_t>(s)),
                         .stages = stages,
                         .first_layer = s,
                         .last_layer = s + 1,
                         .inner_boundaries = {}};
    for (const SimPeer& device : plan.devices[s]) {
      const double seconds = to_seconds(device.forward + device.backward);
      seats[question.classes.size()] = 1;
      question.classes.push_back(
          {.name = "device",
           .count = 1,
           .flops_per_second = stage_flops(costs, spec) / seconds,
           .forward_share = to_seconds(device.forward) / seconds,
           .bits_per_second = plan.wire > Duration{} ? 8 * bytes / to_seconds(plan.wire) : 0,
           .latency_seconds = to_seconds(plan.latency_min + plan.latency_max) / 2});
    }
  }
  return question;
}

void expect_close(const char* name, const SimPlan& plan) {
  const auto predicted = predict_fleet(question_of(plan));
  ASSERT_TRUE(predicted) << predicted.error().what;
  const double measured = run_simulated(plan).step_seconds;
  const double off = predicted->step_seconds / measured - 1;
  std::printf("%-48s predicted %7.2f s, measured %7.2f s, %+5.1f %%\n", name,
              predicted->step_seconds, measured, 100 * off);
  EXPECT_NEAR(off, 0, kTolerance) << name;
}

SimPlan equal(SimPeer device, Duration wire, Duration latency) {
  SimPlan plan;
  plan.peers = {4, 4, 4, 4};
  plan.devices = equal_devices(4, 4, device);
  plan.wire = wire;
  plan.latency_min = latency / 2;
  plan.latency_max = 3 * latency / 2;
  plan.steps = 3;
  return plan;
}

TEST(FleetPrediction, EqualPeers) {
  const SimPeer fast{20ms, 40ms, 0.1}, slow{157ms, 313ms, 0};
  expect_close("compute, LAN", equal(fast, 1ms, 1ms));
  expect_close("compute, 100 ms", equal(slow, 34ms, 100ms));
  expect_close("links as slow as devices, LAN", equal(slow, 200ms, 1ms));
  expect_close("links as slow as devices, 100 ms", equal(slow, 200ms, 100ms));
  expect_close("links four times slower, LAN", equal(fast, 120ms, 1ms));
  expect_close("latency far above work", equal({2ms, 4ms, 0}, 1ms, 100ms));
}

TEST(FleetPrediction, UnequalPeers) {
  const SimPeer fast{20ms, 40ms, 0.1}, slow{80ms, 160ms, 0.1};
  for (const Duration latency : {1ms, 100ms}) {
    SimPlan mix = equal(fast, 5ms, latency);
    mix.microbatches = 384;
    mix.peers = {6, 6, 6, 6};
    mix.devices.assign(4, {fast, fast, slow, slow, slow, slow});
    expect_close("two classes in every stage", mix);
    SimPlan straggler = equal(fast, 5ms, latency);
    straggler.devices[1][3] = {200ms, 400ms, 0.1};
    straggler.microbatches = 256;
    expect_close("one peer ten times slower", straggler);
    SimPlan slow_source = equal(fast, 5ms, latency);
    slow_source.devices[0][0] = slow;
    slow_source.microbatches = 256;
    expect_close("one source four times slower", slow_source);
    SimPlan narrow = equal(fast, 5ms, latency);
    narrow.peers = {4, 2, 3, 5};
    for (std::size_t s = 0; s < 4; ++s) narrow.devices[s].assign(narrow.peers[s], fast);
    expect_close("a stage with fewer peers", narrow);
  }
}

TEST(FleetPrediction, AveragingBesideAndAfterTheNextStep) {
  for (const std::uint32_t delay : {0U, 1U}) {
    SimPlan plan = equal({20ms, 40ms, 0.1}, 15ms, 20ms);
    plan.microbatches = 32;
    plan.delay = delay;
    plan.steps = 5;
    expect_close(delay == 0 ? "averaging after the step" : "averaging beside the step", plan);
    plan.in_flight = 2;
    expect_close("two in flight for a source", plan);
  }
}

}  // namespace
}  // namespace swarmline::bench
