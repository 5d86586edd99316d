// A whole run in virtual time: it ends, learns, is deterministic, and equals the single-process
// reference.
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "engine/config/load.h"
#include "pipeline/reference/reference_trainer.h"
#include "sim/cluster/sim_cluster.h"
#include "sim/cluster/synthetic_source.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

RunConfig tiny(std::uint32_t stages, std::uint32_t peers) {
  RunConfig config;
  config.run.steps = 6;
  config.run.seed = 7;
  config.model.layers = 4;
  config.model.d_model = 16;
  config.model.heads = 2;
  config.model.dtype = DType::kF64;
  config.data.files = {"synthetic"};
  config.batch = {.batch = 16, .microbatch = 2, .sequence = 8};
  config.optimizer.lr = 1e-2;
  config.codec = {.forward = "none", .backward = "none"};
  config.pipeline.stages = stages;
  config.pipeline.peers.assign(stages, peers);
  return config;
}

SimClusterOptions options_for(const RunConfig& config) {
  SimClusterOptions options;
  options.config = config;
  options.make_model = make_stage_model;
  options.eval_sequences = 4;
  options.link = {.latency = 2ms, .jitter = 5ms, .bytes_per_second = 50e6};
  for (std::uint32_t i = 0; i < 64; ++i)
    options.peers.push_back(
        {.forward = 4ms * (1 + i % 3), .backward = 8ms * (1 + i % 3), .jitter = 0.3});
  return options;
}

TEST(SimSwarm, TrainsToTheEnd) {
  SimCluster cluster(options_for(tiny(4, 2)));
  const auto outcome = cluster.run(600s);
  ASSERT_TRUE(outcome.has_value()) << cluster.coordinator().status_json();
  EXPECT_EQ(outcome->exit_code, 0) << outcome->sentence;
  EXPECT_EQ(cluster.checkpoint().files().size(), 4U);
}

TEST(SimSwarm, SameSeedSameTrace) {
  std::uint64_t hashes[2];
  for (std::uint64_t& hash : hashes) {
    SimCluster cluster(options_for(tiny(4, 2)));
    ASSERT_TRUE(cluster.run(600s).has_value());
    hash = cluster.trace_hash();
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  SimClusterOptions other = options_for(tiny(4, 2));
  other.seed = 2;
  SimCluster cluster(other);
  ASSERT_TRUE(cluster.run(600s).has_value());
  EXPECT_NE(cluster.trace_hash(), hashes[0]);
}

TEST(SimSwarm, EqualsTheReference) {
  for (std::uint32_t delay : {0U, 1U}) {
    RunConfig config = tiny(4, 2);
    config.pipeline.delay = delay;
    config.model.dropout = 0.1;
    SimClusterOptions options = options_for(config);
    SimCluster cluster(options);
    const auto outcome = cluster.run(600s);
    ASSERT_TRUE(outcome && outcome->exit_code == 0) << cluster.coordinator().status_json();
    const auto swarm = cluster.parameters();

    SyntheticSource source(config.run.seed, options.vocab, config.batch.sequence);
    ReferenceOptions reference{.config = config, .model = *resolve_model(config, options.vocab)};
    auto result = run_reference(reference, source, [](const ReferenceStep&) {});
    ASSERT_TRUE(result.has_value()) << result.error().what;
    for (const ParameterSlot& slot : result->layout.slots) {
      const auto& bytes = swarm.at(slot.name);
      const double* want = reinterpret_cast<const double*>(result->parameters.data()) + slot.offset;
      const double* got = reinterpret_cast<const double*>(bytes.data());
      double peak = 0, worst = 0;
      for (std::uint64_t i = 0; i < slot.elements; ++i) {
        peak = std::max(peak, std::abs(want[i]));
        worst = std::max(worst, std::abs(want[i] - got[i]));
      }
      // A key bias has no gradient (softmax does not see it): what Adam makes of pure noise has no
      // scale of its own.
      const double floor = slot.name.ends_with("attention.k.bias") ? 1e-12 : 0;
      EXPECT_LE(worst, 1e-9 * peak + floor) << slot.name << " delay " << delay;
    }
  }
}

}  // namespace
}  // namespace swarmline
