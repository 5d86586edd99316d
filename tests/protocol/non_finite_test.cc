// A gradient that is not finite: the run stops, or passes over the step on all stages, as the
// reference does.
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

class NonFinite : public Protocol {};

TEST_P(NonFinite, StopNamesTheStepAndTheWayOut) {
  Swarm swarm(options_for(run_of({2, 2}), poison()));
  const RunOutcome outcome = swarm.end();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.sentence.find("step 2 is not finite"), std::string::npos) << outcome.sentence;
  EXPECT_NE(outcome.sentence.find("on_nonfinite = \"skip\""), std::string::npos)
      << outcome.sentence;
}

TEST_P(NonFinite, SkipEqualsTheReferenceThatSkips) {
  RunConfig config = run_of({2, 2, 1});
  config.run.on_nonfinite = swarmline::NonFinite::kSkip;
  Swarm swarm(options_for(config, poison()));
  swarm.finish();
  EXPECT_EQ(commits_of(swarm.cluster()), config.run.steps);
  expect_equal(swarm.cluster().parameters(), reference_with(config, poison()));
  expect_no_graphs();
  // And it is not what the run without the poison gives: a step is missing.
  const Tensors swarm_tensors = swarm.cluster().parameters();
  EXPECT_NE(swarm_tensors, reference_of(config).tensors);
}

INSTANTIATE_TEST_SUITE_P(Delay, NonFinite, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
