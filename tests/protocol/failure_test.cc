// Compute that fails: on every peer, on one peer, in the middle of a sum.
#include <map>
#include <set>

#include "tests/harness/mark_expected.h"
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

class Failure : public Protocol {};

const MicrobatchId kPoison{{PhaseKind::kTrain, 1}, 3};

TEST_P(Failure, APoisonMicrobatchStopsTheRunWithItsName) {
  for (const std::uint32_t peers : {4U, 2U, 1U}) {
    std::set<int> tried;
    ModelHooks hooks;
    hooks.before_forward = [&](StageId stage, int replica, const AttemptId& id) -> Result<void> {
      if (stage.value != 1 || id.microbatch != kPoison) return {};
      tried.insert(replica);
      return fail(ErrorCode::kDevice, "out of luck at replica " + std::to_string(replica));
    };
    Swarm swarm(options_for(run_of({1, peers, 1}), hooks));
    const RunOutcome outcome = swarm.end(std::chrono::seconds(60));
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(tried.size(), std::min(peers, 3U));
    EXPECT_NE(outcome.sentence.find("step 2 microbatch 3"), std::string::npos) << outcome.sentence;
    for (const int replica : tried)
      EXPECT_NE(outcome.sentence.find("out of luck at replica " + std::to_string(replica)),
                std::string::npos)
          << outcome.sentence;
  }
}

TEST_P(Failure, AMicrobatchThatFailsOnOnePeerIsComputedByAnother) {
  for (std::uint16_t where = 0; where < 3; ++where) {
    ModelHooks hooks;
    std::map<std::uint64_t, std::uint32_t> failures;  // by step
    hooks.before_forward = [&](StageId stage, int replica, const AttemptId& id) -> Result<void> {
      if (stage.value != where || replica != 0 || id.microbatch.index >= 4) return {};
      std::uint32_t& in_step = failures[id.microbatch.phase.step];
      if (in_step == 2) return {};  // with a third one it would be lost
      ++in_step;
      return fail(ErrorCode::kDevice, "this one can't");
    };
    const RunConfig config = run_of({2, 2, 2});
    Swarm swarm(options_for(config, hooks));
    expect_reference(swarm, config);
    EXPECT_FALSE(failures.empty()) << "stage " << where;
  }
}

// Half a contribution in the sums can't be taken back: the peer ends, and says why. Others may take
// its stage; where nobody comes, that is what the run ends with.
TEST_P(Failure, ABackwardThatFailsEndsItsPeerByName) {
  ModelHooks hooks;
  hooks.before_backward = [&](StageId stage, int, const AttemptId& id) -> Result<void> {
    if (stage.value != 1 || id.microbatch != kPoison) return {};
    return fail(ErrorCode::kDevice, "half way");
  };
  RunConfig config = run_of({1, 2, 1});
  config.net.peers_wait_seconds = 10;
  Swarm swarm(options_for(config, hooks));
  const RunOutcome outcome = swarm.end(std::chrono::seconds(60));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.sentence.find("step 2 microbatch 3"), std::string::npos) << outcome.sentence;
  EXPECT_NE(outcome.sentence.find("half way"), std::string::npos) << outcome.sentence;
}

// It would fail at all that follows: its peer ends with the first, and others do its work.
TEST_P(Failure, ALostDeviceEndsItsPeerByName) {
  const MarkExpected lost("microbatches.device_lost");
  std::map<int, int> failures;  // by replica
  ModelHooks hooks;
  hooks.before_forward = [&](StageId stage, int replica, const AttemptId& id) -> Result<void> {
    if (stage.value != 1 || replica != 0 || id.microbatch.phase.step < 1) return {};
    ++failures[replica];
    return fail(ErrorCode::kDeviceLost, "the device is lost");
  };
  const RunConfig config = run_of({1, 2, 1});
  Swarm swarm(options_for(config, hooks));
  expect_reference(swarm, config, 1);
  EXPECT_EQ(failures[0], 1);
}

INSTANTIATE_TEST_SUITE_P(Delay, Failure, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
