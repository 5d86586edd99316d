// The control path's logic: wiring decisions, ledger events, simulated events, and whole simulated
// steps. CPU time of one thread. Each beside what it cannot be faster than, timed in the same run:
//   of_heap   wiring: popping the least of as many numbers from a heap and pushing it back;
//             simulator: the same, with a queue of callbacks
//   of_store  ledger: storing a number at the cells' places in the same order
//   of_model  a step: the stand-in model's forwards and backwards alone
// 1: as fast as that.
#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>

#include <benchmark/benchmark.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/rng.h"
#include "bench/copy_rate.h"
#include "pipeline/ledger/ledger.h"
#include "pipeline/wiring/wiring_router.h"
#include "sim/cluster/fake_stage_model.h"
#include "sim/cluster/sim_cluster.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;
using bench::thread_seconds;

// Times `limit` for as many events, once, and reports it as a share of what an iteration took.
template <typename Limit>
void report(benchmark::State& state, const char* name, double seconds, double events, Limit limit) {
  constexpr int kTries = 5;
  double best = 1e30;
  for (int i = 0; i < kTries; ++i) {
    const double start = thread_seconds();
    limit();
    best = std::min(best, thread_seconds() - start);
  }
  const auto iterations = static_cast<double>(state.iterations());
  state.SetItemsProcessed(static_cast<std::int64_t>(events * iterations));
  state.counters[name] = best / (seconds / iterations);
}

// ---- Wiring -------------------------------------------------------------------------------------

void wiring_decision(benchmark::State& state) {
  constexpr int kPicks = 1024;
  const auto peers = static_cast<std::uint32_t>(state.range(0));
  WiringRouter router({.in_flight_max = 8, .seed = 1});
  for (std::uint32_t p = 1; p <= peers; ++p) router.add(PeerId{p}, {.forward = 10ms * p});
  std::uint32_t index = 0;
  const double start = thread_seconds();
  for (auto _ : state) {
    for (int i = 0; i < kPicks; ++i) {
      const auto peer = router.pick({{PhaseKind::kTrain, 0}, index++}, {});
      SWARMLINE_CHECK(peer.has_value());
      router.on_sent(*peer, {});
      router.on_forward_done(*peer, 10ms * peer->value);
      router.on_backward_done(*peer, 20ms * peer->value);
      router.on_settled(*peer);
    }
  }
  const double seconds = thread_seconds() - start;
  report(state, "of_heap", seconds, kPicks, [&] {
    std::priority_queue<std::pair<double, std::uint32_t>> heap;
    for (std::uint32_t p = 1; p <= peers; ++p) heap.emplace(-0.001 * p, p);
    for (int i = 0; i < kPicks; ++i) {
      auto [time, peer] = heap.top();
      heap.pop();
      heap.emplace(time - 0.001 * peer, peer);
    }
    benchmark::DoNotOptimize(heap.top());
  });
}
BENCHMARK(wiring_decision)->ArgName("peers")->Arg(4)->Arg(Limits::next_candidates_max);

// ---- Ledger -------------------------------------------------------------------------------------

// A whole step's leases and reports, in an order as they come: microbatches overtake each other.
void ledger_report(benchmark::State& state) {
  const auto indices = static_cast<std::uint32_t>(state.range(0));
  constexpr std::uint16_t kStages = 8;
  constexpr std::uint32_t kPeers = 16;  // of a stage
  struct Event {
    StageId stage;
    std::uint32_t index;
    Seat seat;
  };
  std::vector<Event> events;
  Rng rng(1);
  for (std::uint16_t s = 0; s < kStages; ++s) {
    for (std::uint32_t i = 0; i < indices; ++i) {
      const auto peer = static_cast<std::uint32_t>(1 + s * kPeers + rng.below(kPeers));
      events.push_back({StageId{s}, i, {PeerId{peer}, StageId{s}, Incarnation{1}}});
    }
  }
  for (std::size_t i = events.size(); i > 1; --i) std::swap(events[i - 1], events[rng.below(i)]);
  const Seat source{PeerId{1}, StageId{0}, Incarnation{1}};
  std::uint64_t step = 0;
  const double start = thread_seconds();
  for (auto _ : state) {
    Ledger ledger;
    const Phase phase{PhaseKind::kTrain, step++};
    ledger.open(phase, Version{0}, indices, kStages);
    SWARMLINE_CHECK(!ledger.lease(phase, source, indices).empty());
    for (const Event& event : events) {
      const Verdict verdict =
          ledger.report(phase, event.stage, event.index, event.seat, Attempt{0});
      SWARMLINE_CHECK(verdict == Verdict::kAccepted);
    }
    SWARMLINE_CHECK(ledger.complete(phase));
  }
  const double seconds = thread_seconds() - start;
  report(state, "of_store", seconds, static_cast<double>(events.size()), [&] {
    std::vector<std::uint16_t> cells(std::size_t{kStages} * indices);
    for (const Event& event : events)
      cells[event.stage.value * indices + event.index] =
          static_cast<std::uint16_t>(event.seat.peer.value);
    benchmark::DoNotOptimize(cells.data());
    benchmark::ClobberMemory();
  });
}
BENCHMARK(ledger_report)
    ->ArgName("microbatches")
    ->Arg(256)
    ->Arg(4096)
    ->Unit(benchmark::kMicrosecond);

// ---- Simulator ----------------------------------------------------------------------------------

// Nodes that wake each other up, over and over.
void simulated_event(benchmark::State& state) {
  const auto nodes = static_cast<std::uint32_t>(state.range(0));
  constexpr std::uint32_t kEvents = 20'000;
  const double start = thread_seconds();
  for (auto _ : state) {
    SimRuntime runtime(1);
    std::uint64_t left = kEvents;
    std::function<void(SimNodeId)> wake = [&](SimNodeId node) {
      if (left == 0) return;
      --left;
      const SimNodeId next = (node * 7 + 1) % nodes;
      runtime.node(next).call_after(std::chrono::microseconds(1 + node), [&, next] { wake(next); });
    };
    for (SimNodeId node = 0; node < nodes; ++node) wake(node);
    while (runtime.step()) {
    }
    SWARMLINE_CHECK(runtime.events() == kEvents);
  }
  const double seconds = thread_seconds() - start;
  report(state, "of_heap", seconds, kEvents, [&] {
    using Due = std::pair<std::uint64_t, std::function<void()>>;
    const auto later = [](const Due& a, const Due& b) { return a.first > b.first; };
    std::priority_queue<Due, std::vector<Due>, decltype(later)> queue(later);
    std::uint64_t left = kEvents, now = 0;
    std::function<void(std::uint64_t)> wake = [&](std::uint64_t node) {
      if (left == 0) return;
      --left;
      const std::uint64_t next = (node * 7 + 1) % nodes;
      queue.emplace(now + 1 + node, [&, next] { wake(next); });
    };
    for (std::uint64_t node = 0; node < nodes; ++node) wake(node);
    while (!queue.empty()) {
      auto [when, run] = queue.top();
      queue.pop();
      now = when;
      run();
    }
  });
}
BENCHMARK(simulated_event)->ArgName("nodes")->Arg(16)->Arg(1024)->Unit(benchmark::kMillisecond);

// ---- Whole steps --------------------------------------------------------------------------------

RunConfig step_config(std::uint32_t peers) {
  RunConfig config;
  config.codec = {.forward = "none", .backward = "none"};
  config.run.steps = 2;
  config.model.layers = 4;
  config.model.d_model = 8;
  config.model.heads = 1;
  config.model.dtype = DType::kF64;
  config.data.files = {"synthetic"};
  config.batch = {.batch = 16 * peers, .microbatch = 1, .sequence = 16};
  config.pipeline.stages = 4;
  config.pipeline.peers.assign(4, peers);
  return config;
}

// Joining, two steps and the last checkpoint of a swarm in virtual time: what coordinator, peers,
// messages and simulator cost for each contribution (one microbatch at one stage).
void simulated_swarm(benchmark::State& state) {
  init_log({.level = LogLevel::kError, .file = {}, .prefix = {}});
  SimClusterOptions options;
  options.config = step_config(static_cast<std::uint32_t>(state.range(0)));
  options.make_model = make_fake_model;
  const double contributions =
      static_cast<double>(options.config.run.steps * options.config.microbatches_per_step() *
                          options.config.pipeline.stages);
  double events = 0;
  const double start = thread_seconds();
  for (auto _ : state) {
    SimCluster cluster(options);
    const auto outcome = cluster.run(3600s);
    SWARMLINE_CHECK(outcome && outcome->exit_code == 0);
    events += static_cast<double>(cluster.runtime().events());
  }
  const double seconds = thread_seconds() - start;
  const auto spec = resolve_model(options.config, options.vocab);
  SWARMLINE_CHECK(spec.has_value());
  const StageSpec middle{
      .stage = StageId{1}, .stages = 4, .first_layer = 1, .last_layer = 2, .inner_boundaries = {}};
  report(state, "of_model", seconds, contributions, [&] {
    const auto model = make_fake_model(*spec, middle, {});
    const Buffer hidden = Buffer::zeroed(spec->sequence * spec->hidden_width() * sizeof(double));
    Buffer sums = Buffer::zeroed((*model)->layout().bytes());
    for (int i = 0; i < static_cast<int>(contributions); ++i) {
      ForwardInput in{.id = {{{PhaseKind::kTrain, 0}, static_cast<std::uint32_t>(i)}, Attempt{0}}};
      in.train = true;
      in.rows = 1;
      in.hidden = hidden.bytes();
      SWARMLINE_CHECK((*model)->forward(in).has_value());
      BackwardInput back{.id = in.id};
      back.output_gradient = hidden.bytes();
      back.accumulator = sums.bytes();
      SWARMLINE_CHECK((*model)->backward(back).has_value());
    }
  });
  state.counters["events_per_contribution"] =
      events / static_cast<double>(state.iterations()) / contributions;
}
BENCHMARK(simulated_swarm)->ArgName("peers_a_stage")->Arg(2)->Arg(8)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace swarmline
