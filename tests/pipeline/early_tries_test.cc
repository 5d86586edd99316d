// Early second tries and leases in whole simulated swarms: what they save when a peer becomes slow,
// and that a swarm of unequal machines makes next to none.
#include <set>

#include <gtest/gtest.h>

#include "pipeline/wiring/wiring_router.h"
#include "sim/cluster/fake_stage_model.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/swarm_harness.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

RunConfig run_of(std::uint32_t delay) {
  RunConfig config = small_run(3, 1);
  config.pipeline.peers = {2, 3, 2};
  config.pipeline.delay = delay;
  config.batch = {.batch = 64, .microbatch = 2, .sequence = 4};
  config.wiring.hedge_share = 1;  // as many as it takes
  config.run.steps = 8;
  return config;
}

// Without: the same wiring, under the name of fixed routes, which have no early tries or leases.
enum class Early : std::uint8_t { kWith, kWithout };
SimClusterOptions options_of(RunConfig config, Early early) {
  if (early == Early::kWithout) config.pipeline.wiring = WiringKind::kStatic;
  SimClusterOptions options = swarm_of(config, make_fake_model);
  options.make_wiring = [](const RunConfig& run, const Seat& self) -> std::unique_ptr<Wiring> {
    WiringOptions wiring;
    wiring.alpha = run.wiring.alpha;
    wiring.in_flight_max = run.wiring.in_flight_per_peer;
    wiring.seed = run.run.seed ^ self.peer.value;
    return std::make_unique<WiringRouter>(wiring);
  };
  for (std::uint32_t i = 0; i < 7; ++i)
    options.peers.push_back({.forward = 20ms, .backward = 40ms, .jitter = 0.2});
  return options;
}

struct Ended {
  Duration disturbed{};  // from the disturbance to the second commit after it
  std::uint64_t forwards = 0, stalls = 0;
  std::uint64_t sent_again = 0;    // by peers
  std::uint64_t leased_again = 0;  // forwards of these
  std::set<AttemptId> tries;       // of either, whatever hops they took
  std::uint64_t trace_hash = 0;
  Tensors parameters;
};
Ended run(SimClusterOptions options, std::uint16_t stage,
          const std::function<void(Swarm& swarm, SimNodeId node)>& disturb) {
  constexpr std::uint64_t kCalmSteps = 4;  // every sender has seen enough of every peer
  Swarm swarm(std::move(options));
  Ended ended;
  swarm.watch([&](SimNodeId, SimNodeId, const Frame& frame) {
    ended.stalls += kind_of(frame) == MessageKind::kStallReport;
    if (kind_of(frame) != MessageKind::kForward) return;
    // Peers' attempts have the peer above the lower half, the ledger's have none.
    const std::uint64_t attempt = attempt_of(frame)->attempt.value;
    const bool by_peer = (attempt >> 32 & 0xFFFF) != 0;
    ++ended.forwards;
    ended.sent_again += by_peer;
    ended.leased_again += attempt != 0 && !by_peer;
    if (attempt != 0) ended.tries.insert(*attempt_of(frame));
  });
  swarm.until_started();
  const auto committed = [&](std::uint64_t steps) {
    return swarm.until([&] { return commits_of(swarm.cluster()) >= steps; });
  };
  EXPECT_TRUE(committed(kCalmSteps));
  EXPECT_EQ(ended.sent_again, 0U) << "in a calm swarm";
  const SimNodeId node = swarm.node(stage, 1);
  swarm.cluster().runtime().run_for(200ms);  // its queue is full
  const Duration began = swarm.cluster().elapsed();
  disturb(swarm, node);
  EXPECT_TRUE(committed(kCalmSteps + 2));
  ended.disturbed = swarm.cluster().elapsed() - began;
  swarm.finish();
  ended.parameters = swarm.cluster().parameters();
  ended.trace_hash = swarm.cluster().trace_hash();
  return ended;
}

class EarlyTries : public testing::TestWithParam<std::uint32_t> {
 protected:
  // Ends as the undisturbed run does, twice the same; how much less time it took with early tries.
  double saved(std::uint16_t stage,
               const std::function<void(Swarm& swarm, SimNodeId node)>& disturb) {
    const RunConfig config = run_of(GetParam());
    const Tensors wanted = one_each(config);
    const Ended with = run(options_of(config, Early::kWith), stage, disturb);
    const Ended again = run(options_of(config, Early::kWith), stage, disturb);
    const Ended without = run(options_of(config, Early::kWithout), stage, disturb);
    EXPECT_EQ(with.trace_hash, again.trace_hash);
    expect_equal(with.parameters, wanted);
    expect_equal(without.parameters, wanted);
    EXPECT_GT(stage == 0 ? with.leased_again : with.sent_again, 0U);
    EXPECT_EQ(with.stalls, 0U) << "late is no stall";
    EXPECT_EQ(without.sent_again + without.leased_again, 0U);
    return to_seconds(without.disturbed) / to_seconds(with.disturbed);
  }
};

// A full queue of eight at a tenth of the speed is 4.8 s of work, two thirds of the time without;
// with, most of it is done elsewhere after less than half of that. Measured: 1.4 and 1.8 times.
TEST_P(EarlyTries, APeerThatBecomesSlowIsPassedBy) {
  const MarkExpected early("forwarder.early_second_try");
  EXPECT_GT(saved(1, [](Swarm& swarm,
                        SimNodeId node) { swarm.cluster().device(node - 1).slow_down(10); }),
            1.25);
}

// Without any second try: what it did not begin it hands back, and takes little more.
TEST_P(EarlyTries, APeerThatBecomesSlowKeepsLittle) {
  RunConfig config = run_of(GetParam());
  config.wiring.hedge_share = 0;
  const auto slow = [](Swarm& swarm, SimNodeId node) {
    swarm.cluster().device(node - 1).slow_down(10);
  };
  const Ended with = run(options_of(config, Early::kWith), 1, slow);
  const Ended without = run(options_of(config, Early::kWithout), 1, slow);
  EXPECT_TRUE(with.tries.empty());
  expect_equal(with.parameters, one_each(config));
  EXPECT_GT(to_seconds(without.disturbed), 1.25 * to_seconds(with.disturbed));
}

// Nobody is before it who could send its microbatches elsewhere; the other source starts them anew
// once it has nothing else to do.
TEST_P(EarlyTries, ASourceThatBecomesSlowHoldsNobodyUp) {
  EXPECT_GT(saved(0, [](Swarm& swarm,
                        SimNodeId node) { swarm.cluster().device(node - 1).slow_down(10); }),
            1.25);
}

// The step can't end before it wakes; but then its queue is others' work. Measured: 1.09 times.
TEST_P(EarlyTries, APeerThatFreezesShortlyIsPassedBy) {
  EXPECT_GT(saved(1,
                  [](Swarm& swarm, SimNodeId node) {
                    swarm.freeze(node);
                    swarm.cluster().runtime().run_for(2s);
                    swarm.thaw(node);
                  }),
            1.04);
}

// Of four peers two die in mid-step: the queues of the others grow to twice their length and more,
// and everything takes longer. That is no storm of second tries.
TEST_P(EarlyTries, QueuesThatGrowAreNobodysLateness) {
  RunConfig config = run_of(GetParam());
  config.pipeline.peers = {2, 4, 2};
  SimClusterOptions options = options_of(config, Early::kWith);
  options.peers.resize(8, options.peers.front());
  std::uint64_t cancelled = 0;
  const Ended ended = run(std::move(options), 1, [&](Swarm& swarm, SimNodeId) {
    swarm.cluster().network().kill(swarm.node(1, 3));
    swarm.cluster().network().kill(swarm.node(1, 2));
    swarm.watch([&](SimNodeId, SimNodeId, const Frame& frame) {
      cancelled += kind_of(frame) == MessageKind::kCancel;
    });
  });
  EXPECT_GT(ended.sent_again + ended.leased_again, 0U) << "what the dead had";
  EXPECT_EQ(cancelled, 0U);
  expect_equal(ended.parameters, one_each(config));
}

// Machines of which the slowest takes ten times as long as the fastest, uneven links, a queue
// before each: as long as all go on as they do, nobody sends anything twice, and next to nothing is
// leased twice.
TEST_P(EarlyTries, UnequalMachinesAreLeftAlone) {
  const RunConfig config = run_of(GetParam());
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SimClusterOptions options = options_of(config, Early::kWith);
    options.seed = seed;
    options.link = {.latency = 5ms, .jitter = 20ms, .bytes_per_second = 50e6};
    for (std::uint32_t i = 0; i < 7; ++i) {
      const auto times = static_cast<int>(1 + (i * 3 + seed) % 10);
      options.peers[i] = {.forward = 20ms * times, .backward = 40ms * times, .jitter = 0.3};
    }
    const Ended ended = run(std::move(options), 1, [](Swarm&, SimNodeId) {});
    EXPECT_EQ(ended.sent_again, 0U) << "seed " << seed;
    EXPECT_LT(ended.leased_again, ended.forwards / 50) << "seed " << seed;
  }
}

// One that stays slow would be passed by again and again: no more than the budget says.
TEST_P(EarlyTries, TakeNoMoreThanTheirShareOfASteadilySlowSwarm) {
  RunConfig config = run_of(GetParam());
  config.wiring.hedge_share = WiringSection().hedge_share;
  config.run.steps = 24;
  const auto slow = [](Swarm& swarm, SimNodeId node) {
    for (int times = 0; times < 8; ++times) {
      swarm.cluster().device(node - 1).slow_down(times % 2 == 0 ? 10 : 0.1);
      swarm.cluster().runtime().run_for(3s);
    }
  };
  const Ended ended = run(options_of(config, Early::kWith), 1, slow);
  const double microbatches = 24 * config.microbatches_per_step();
  EXPECT_GT(ended.tries.size(), 0U);
  EXPECT_LE(static_cast<double>(ended.tries.size()), 0.05 * microbatches);
  expect_equal(ended.parameters, one_each(config));
}

// Nobody is picked for one that the budget does not allow: whoever is picked has less room until
// what it was sent is settled.
TEST_P(EarlyTries, ThatMayNotBeMadeTakeNobodysRoom) {
  RunConfig config = run_of(GetParam());
  config.wiring.hedge_share = 0;
  const MarkExpected spent("forwarder.hedges_spent");
  const Mark* picked = Mark::find("wiring.picked_the_soonest");
  ASSERT_NE(picked, nullptr);
  const std::uint64_t before = picked->hits();
  const Ended ended = run(options_of(config, Early::kWith), 1, [](Swarm& swarm, SimNodeId node) {
    swarm.cluster().device(node - 1).slow_down(10);
  });
  EXPECT_EQ(picked->hits(), before);
  EXPECT_TRUE(ended.tries.empty());
  expect_equal(ended.parameters, one_each(config));
}

INSTANTIATE_TEST_SUITE_P(Delay, EarlyTries, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
