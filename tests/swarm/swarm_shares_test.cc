// Wiring with real peer processes: work follows emulated speed, and tensors go from peer to peer.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include <gtest/gtest.h>

#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

constexpr double kShareErrorMax = 0.02;  // of each share
constexpr std::uint64_t kWarmupSteps = 1;
constexpr std::uint64_t kMicrobatchesMin = 2000;
constexpr int kRunsMax = 3;  // whoever else has the cores takes them from one peer and not another
constexpr double kControlBytesMax = 800;  // a microbatch, everything the coordinator sends or gets

struct Counted {
  std::map<std::uint64_t, std::uint64_t> microbatches;  // by peer of stage 1
  std::uint64_t total = 0;
};

Counted count_after_warmup(const SwarmFolder& swarm) {
  Counted counted;
  for (const JsonValue& step : swarm.log("step")) {
    if (step["step"].count() <= kWarmupSteps) continue;
    for (const JsonValue& peer : step["peers"].items) {
      if (peer["stage"].count() != 1) continue;
      counted.microbatches[peer["peer"].count()] += peer["microbatches"].count();
      counted.total += peer["microbatches"].count();
    }
  }
  return counted;
}

// Of a peer's share, against what its speed is of all; they are sorted by id, the slowest first.
double largest_error(const Counted& counted) {
  double expected = 1.0 / 7, largest = 0;
  for (const auto& [peer, microbatches] : counted.microbatches) {
    const double share = static_cast<double>(microbatches) / static_cast<double>(counted.total);
    largest = std::max(largest, std::abs(share / expected - 1));
    expected *= 2;
  }
  return largest;
}

// One source feeds three peers that hold their device 16, 32 and 64 ms a microbatch: 109
// microbatches a second in all, which leaves two cores mostly idle.
TEST(SwarmShares, FollowEmulatedSpeedWithinTwoPercent) {
  std::unique_ptr<SwarmFolder> run;
  double error = 1;
  for (int i = 0; i < kRunsMax && error > kShareErrorMax; ++i) {
    run = std::make_unique<SwarmFolder>(
        std::vector<std::string>{"run.steps=9", "batch.batch=280", "batch.microbatch=1",
                                 "batch.sequence=64", "model.layers=2", "pipeline.peers=[1, 3]"});
    const Ended ended = run->launch({"--emulate", "1:0=21.33/42.67", "--emulate", "1:1=10.67/21.33",
                                     "--emulate", "1:2=5.33/10.67"});
    ASSERT_EQ(ended.code, 0) << ended.output;
    const Counted counted = count_after_warmup(*run);
    ASSERT_GE(counted.total, kMicrobatchesMin);
    ASSERT_EQ(counted.microbatches.size(), 3U);
    error = largest_error(counted);
  }
  EXPECT_LE(error, kShareErrorMax) << "in each of " << kRunsMax << " runs";
  const SwarmFolder& swarm = *run;

  const auto status = swarm.status();
  ASSERT_TRUE(status);
  const BoundaryStatus& boundary = status->boundaries.at(0);
  EXPECT_EQ(boundary.microbatches, 9U * 280);
  EXPECT_EQ(boundary.gradients, 9U * 280);
  const double boundary_bytes = static_cast<double>(
      boundary.forward_codec_bytes + boundary.backward_codec_bytes + boundary.forward_token_bytes);
  const auto control_bytes = static_cast<double>(status->control_bytes);
  EXPECT_LT(control_bytes / static_cast<double>(boundary.microbatches), kControlBytesMax);
  EXPECT_LT(control_bytes, 0.05 * boundary_bytes) << "activations do not pass the coordinator";
}

}  // namespace
}  // namespace swarmline
