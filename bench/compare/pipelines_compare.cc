// SWARM against what came before it, in virtual time, with the real coordinator and peers
// (docs/comparison.md): prints the page's tables. `--brief`: fewer microbatches, for a test.
// `--quick`: swarmline alone in the first two tables, for whoever changes it.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "base/log.h"
#include "bench/compare/sim_run.h"

namespace swarmline::bench {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kStages = 4;

struct Work {
  const char* name;
  SimPeer device;
  Duration wire;
};
// Service times of one layer on a V100 (12 for the shared one) that reproduce the paper's table of
// utilizations, and an 8-bit tensor at 500 Mb/s: recalled, unverified.
const Work kWorks[] = {
    {"GPT-3 layer: 157 + 313 ms, tensor 101 ms", {157ms, 313ms, 0}, 101ms},
    {"xxlarge layer x 4 rows: 77 + 153 ms, tensor 134 ms", {77ms, 153ms, 0}, 134ms},
    {"12 shared layers: 230 + 460 ms, tensor 34 ms", {230ms, 460ms, 0}, 34ms},
};
struct Latency {
  const char* name;
  Duration min, max;
};
constexpr Latency kLatencies[] = {{"0", 100us, 100us}, {"100 +- 50 ms", 50ms, 150ms}};

constexpr std::uint32_t kInFlightMax = 64;  // of a sender to one peer: gpipe's whole share

SimPlan plan_of(Rule rule, std::uint32_t replicas, std::uint32_t microbatches_a_peer,
                const Latency& latency) {
  SimPlan plan;
  plan.rule = rule;
  plan.peers.assign(kStages, replicas);
  plan.microbatches = replicas * microbatches_a_peer;
  plan.latency_min = latency.min;
  plan.latency_max = latency.max;
  if (rule == Rule::kGPipe) plan.in_flight_per_peer = kInFlightMax;
  return plan;
}

// Four equal peers a stage.
SimPlan plan_of_equals(std::uint32_t microbatches_a_peer, const Work& work,
                       const Latency& latency) {
  SimPlan plan = plan_of(Rule::kSwarm, 4, microbatches_a_peer, latency);
  plan.devices = equal_devices(kStages, 4, work.device);
  plan.wire = work.wire;
  return plan;
}

double rate_of(const SimPlan& plan) {
  return plan.microbatches / run_simulated(plan).batch_seconds;
}

// Microbatches per second when every device computes, or sends, all the time.
double bound_of(const Work& work, std::uint32_t replicas) {
  const double device = to_seconds(work.device.forward + work.device.backward);
  return replicas / std::max(device, 2 * to_seconds(work.wire));
}

void latency_table(std::uint32_t share, const std::vector<Rule>& rules) {
  std::puts("## 100 ms of latency: 4 stages of 4 equal peers\n");
  std::puts(
      "| work of a microbatch at a stage | system | microbatches/s at 0 | at 100 +- 50 ms | "
      "slowdown | all-reduce and commit at 0 | at 100 +- 50 ms |");
  std::puts("| --- | --- | ---: | ---: | ---: | ---: | ---: |");
  for (const Work& work : kWorks) {
    for (const Rule rule : rules) {
      SimMeasured at[2];
      double rates[2];
      for (int i = 0; i < 2; ++i) {
        SimPlan plan = plan_of(rule, 4, share, kLatencies[i]);
        plan.devices = equal_devices(kStages, 4, work.device);
        plan.wire = work.wire;
        at[i] = run_simulated(plan);
        rates[i] = plan.microbatches / at[i].batch_seconds;
      }
      fmt::print("| {} | {} | {:.2f} | {:.2f} | {:+.0f} % | {:.1f} s | {:.1f} s |\n", work.name,
                 name_of(rule), rates[0], rates[1], 100 * (rates[0] / rates[1] - 1),
                 at[0].averaging_seconds, at[1].averaging_seconds);
    }
    fmt::print("| {} | no device or link ever idle | {:.2f} | {:.2f} | | | |\n", work.name,
               bound_of(work, 4), bound_of(work, 4));
  }
}

// From commit to commit: averaging of a step goes on beside the next one.
void delay_table(std::uint32_t share) {
  std::puts("\n## A delay of one step: 4 stages of 4 equal peers, swarmline\n");
  std::puts(
      "| delay | microbatches a step and peer | work of a microbatch at a stage | microbatches/s "
      "at 0 "
      "| at 100 +- 50 ms | slowdown |");
  std::puts("| ---: | ---: | --- | ---: | ---: | ---: |");
  for (const std::uint32_t delay : {0U, 1U}) {
    for (const std::uint32_t of_a_peer : {share / 2, share}) {
      for (const Work& work : kWorks) {
        double rates[2];
        for (int i = 0; i < 2; ++i) {
          SimPlan plan = plan_of_equals(of_a_peer, work, kLatencies[i]);
          plan.delay = delay;
          plan.steps = 6;
          rates[i] = plan.microbatches / run_simulated(plan).step_seconds;
        }
        fmt::print("| {} | {} | {} | {:.2f} | {:.2f} | {:+.0f} % |\n", delay, of_a_peer, work.name,
                   rates[0], rates[1], 100 * (rates[0] / rates[1] - 1));
      }
    }
  }
}

struct Fleet {
  Rule rule;
  std::uint32_t share;  // microbatches of a step for a peer of a stage
};

// Two peers a stage of 60 ms a microbatch, four of 240 ms.
void fleet_table(const std::vector<Fleet>& fleets) {
  const SimPeer fast{20ms, 40ms, 0.1}, slow{80ms, 160ms, 0.1};
  std::puts("\n## A fleet of two classes: the parts alone, and all of it\n");
  std::puts(
      "| latency | system | microbatches a step and peer | 2 fast a stage | 4 slow a stage | "
      "sum | together | of the sum |");
  std::puts("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |");
  for (const Latency& latency : kLatencies) {
    for (const Fleet& fleet : fleets) {
      const auto rate = [&](std::uint32_t fasts, std::uint32_t slows) {
        SimPlan plan = plan_of(fleet.rule, fasts + slows, fleet.share, latency);
        std::vector<SimPeer> stage(fasts, fast);
        stage.resize(fasts + slows, slow);
        plan.devices.assign(kStages, stage);
        plan.wire = 5ms;
        return rate_of(plan);
      };
      const double fasts = rate(2, 0), slows = rate(0, 4), both = rate(2, 4);
      fmt::print("| {} | {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.0f} % |\n", latency.name,
                 name_of(fleet.rule), fleet.share, fasts, slows, fasts + slows, both,
                 100 * both / (fasts + slows));
    }
  }
}

void straggler_table(std::uint32_t share) {
  const SimPeer usual{20ms, 40ms, 0.1}, slow{200ms, 400ms, 0.1};
  constexpr double kFairShare = 0.1 / 3.1;
  std::puts("\n## One peer ten times slower: stage 1, one of four\n");
  fmt::print("Its share of the stage's speed is {:.1f} %.\n\n", 100 * kFairShare);
  std::puts("| latency | system | its share | microbatches/s | round trip p50 | p99 | most |");
  std::puts("| --- | --- | ---: | ---: | ---: | ---: | ---: |");
  for (const Latency& latency : kLatencies) {
    for (const Rule rule : {Rule::kSwarm, Rule::kReference, Rule::kGPipe, Rule::k1F1B}) {
      SimPlan plan = plan_of(rule, 4, share, latency);
      plan.devices = equal_devices(kStages, 4, usual);
      plan.devices[1][3] = slow;
      plan.wire = 5ms;
      const SimMeasured run = run_simulated(plan);
      fmt::print("| {} | {} | {:.1f} % | {:.1f} | {:.2f} s | {:.2f} s | {:.2f} s |\n", latency.name,
                 name_of(rule), 100 * run.shares[1][3], plan.microbatches / run.batch_seconds,
                 run.quantile(0.5), run.quantile(0.99), run.quantile(1));
    }
  }
}

void window_table(std::uint32_t share) {
  std::puts("\n## Microbatches in flight: 4 stages of 4 equal peers, swarmline\n");
  std::puts(
      "| in flight for each peer of the swarm | work of a microbatch at a stage | "
      "microbatches/s at 0 | at 100 +- 50 ms |");
  std::puts("| ---: | --- | ---: | ---: |");
  for (const std::uint32_t per_peer : {1U, 2U, 4U, 8U}) {
    for (const Work& work : kWorks) {
      double rates[2];
      for (int i = 0; i < 2; ++i) {
        SimPlan plan = plan_of_equals(share, work, kLatencies[i]);
        plan.in_flight = per_peer * kStages;  // sources are a fourth of the peers
        rates[i] = rate_of(plan);
      }
      fmt::print("| {} | {} | {:.2f} | {:.2f} |\n", per_peer, work.name, rates[0], rates[1]);
    }
  }
}

}  // namespace
}  // namespace swarmline::bench

int main(int argc, char** argv) {
  using namespace swarmline;
  init_log({.level = LogLevel::kError, .file = {}, .prefix = {}});
  const bool brief = argc > 1 && std::strcmp(argv[1], "--brief") == 0;
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  const std::uint32_t share = brief ? 4 : 64;
  using bench::Rule;
  if (argc > 1 && std::strcmp(argv[1], "--delay") == 0) {
    bench::delay_table(share);
    return 0;
  }
  std::vector<bench::Fleet> fleets = {{Rule::kSwarm, 4 * share}, {Rule::kSwarm, share}};
  if (quick) {
    bench::latency_table(share, {Rule::kSwarm});
    bench::fleet_table(fleets);
    return 0;
  }
  for (const Rule rule : {Rule::kReference, Rule::kGPipe, Rule::k1F1B})
    fleets.push_back({rule, share});
  bench::latency_table(share, {Rule::kSwarm, Rule::kGPipe, Rule::k1F1B});
  bench::fleet_table(fleets);
  bench::straggler_table(share);
  bench::window_table(share);
  return 0;
}
