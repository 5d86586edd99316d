// What changes numbers on the way, together: learned boundaries under 8-bit codecs, and fp8
// products. Such a swarm is near its reference, which has the same model and no codecs.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/oracle/oracle_case.h"

namespace swarmline::oracle {
namespace {

// Slow enough that a difference of one step does not grow in the next ones.
RunConfig slow_config() {
  RunConfig config = config_of({.stages = 2, .peers = 2, .dropout = true}, DType::kF32);
  config.run.steps = 8;
  config.optimizer.lr = 1e-3;
  return config;
}

// Losses within `share` of the reference's at every step, and not the same.
void expect_near_reference(const RunConfig& config, double share) {
  RunConfig plain = config;
  plain.codec = {.forward = "none", .backward = "none"};
  const References& references = references_of(plain);
  const Trace swarm = run_swarm(swarm_options(config, 3));
  ASSERT_EQ(swarm.losses.size(), references.reference.losses.size());
  for (std::size_t step = 0; step < swarm.losses.size(); ++step) {
    const double expected = references.reference.losses[step];
    EXPECT_NEAR(swarm.losses[step], expected, share * expected) << step;
  }
  EXPECT_NE(swarm.losses.back(), references.reference.losses.back());
  EXPECT_NEAR(swarm.eval_loss, references.reference.eval_loss,
              share * references.reference.eval_loss);
}

TEST(BoundaryUnderACodec, IsNearTheReference) {
  for (const BoundaryKind kind : {BoundaryKind::kBottleneck, BoundaryKind::kMaxout}) {
    RunConfig config = slow_config();
    config.model.boundary = kind;
    config.codec.forward = "lin8";
    config.codec.backward = "h8";
    expect_near_reference(config, 0.005);
  }
}

TEST(Fp8Products, AreNearTheReference) {
  RunConfig config = slow_config();
  config.model.compute = ComputeKind::kFp8;
  expect_near_reference(config, 0.005);
}

}  // namespace
}  // namespace swarmline::oracle
