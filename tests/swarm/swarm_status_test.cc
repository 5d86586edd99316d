// What is said of runs that nobody answers for: how far they came, and how to go on.
#include <algorithm>
#include <csignal>
#include <string>

#include <gtest/gtest.h>

#include "engine/store/files.h"
#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

bool has(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

class SwarmStatus : public ::testing::Test {
 protected:
  SwarmStatus() { adopt_orphans(); }
  ~SwarmStatus() override { expect_nothing_left(); }
  // Of one whose machine has lost its power, as it were.
  static void kill_all(Program& launch) {
    const std::vector<pid_t> started = descendants(launch.pid());
    launch.signal(SIGKILL);
    launch.wait();
    for (const pid_t pid : started) ::kill(pid, SIGKILL);
  }
};

TEST_F(SwarmStatus, ADeadRunSaysHowFarItCameAndGoesOnAsItSays) {
  const SwarmFolder swarm({"model.dtype=fp64", "run.steps=60", "checkpoint.every_steps=5"});
  {
    Program launch = swarm.start("launch", swarm.emulating(2, 4));
    ASSERT_TRUE(swarm.wait_for_step(12)) << launch.output() << swarm.logs();
    Program watch(swarm.temp(), "watch", {"status", swarm.run().path(), "--watch"});
    ASSERT_TRUE(watch.wait_for_output("step "));
    kill_all(launch);
    EXPECT_EQ(watch.wait(), 1);
    EXPECT_TRUE(has(watch.output(), "died after step ")) << watch.output();
  }
  const Ended text = run_program(swarm.temp(), "text", {"status", swarm.run().path()});
  EXPECT_EQ(text.code, 0);
  for (const char* part : {"died after step ", " of 60 at 20", "/checkpoints/step-",
                           "continue with: swarmline launch "})
    EXPECT_TRUE(has(text.output, part)) << part << "\n" << text.output;
  const Ended json = run_program(swarm.temp(), "json", {"status", "--json", swarm.run().path()});
  const auto parsed = parse_status(json.output);
  ASSERT_TRUE(parsed.has_value()) << json.output;
  EXPECT_EQ(parsed->state, "died");
  EXPECT_GE(parsed->step, 12U);
  EXPECT_FALSE(parsed->events.empty());
  const std::vector<JsonValue> steps = swarm.log("step");
  ASSERT_FALSE(steps.empty());
  EXPECT_NEAR(parsed->wall_seconds, steps.back()["wall_seconds"].number_or(0), 1)
      << "it lived then";
  const Ended stopped = run_program(swarm.temp(), "stopped", {"stop", swarm.run().path()});
  EXPECT_EQ(stopped.code, 1);
  EXPECT_TRUE(has(stopped.output, "there is nothing to stop")) << stopped.output;
  // Its steps can be looked at as those of a living one.
  const Ended plot = run_program(swarm.temp(), "plot", {"plot", swarm.run().path()});
  EXPECT_EQ(plot.code, 0) << plot.output;
  EXPECT_TRUE(has(plot.output, "nats per token")) << plot.output;
  const std::string svg = swarm.temp().at("shares.svg"), csv = swarm.temp().at("steps.csv");
  EXPECT_EQ(run_program(swarm.temp(), "files",
                        {"plot", swarm.run().path(), "--what", "shares", "--stage", "1", "--svg",
                         svg, "--csv", csv})
                .code,
            0);
  EXPECT_TRUE(has(*read_text_file(svg, 1 << 20), "share of the contributions"));
  const std::string rows = *read_text_file(csv, 1 << 20);
  EXPECT_GE(std::ranges::count(rows, '\n'), 12);
  Program again = swarm.start("launch", swarm.emulating(2, 4));
  EXPECT_EQ(again.wait(), 0) << again.output();
  expect_reference(swarm);
}

TEST_F(SwarmStatus, ARunThatDiedBeforeItsFirstStepSaysSo) {
  const SwarmFolder swarm({});
  Program coordinator = swarm.start("coordinator");
  ASSERT_TRUE(coordinator.wait_for_output("swarmline peer --join"));
  const Ended waits = run_program(swarm.temp(), "waits", {"status", swarm.run().path()});
  EXPECT_TRUE(has(waits.output, "0 of 2 peers are here")) << waits.output;
  coordinator.signal(SIGKILL);
  coordinator.wait();
  const Ended ended = run_program(swarm.temp(), "ended", {"status", swarm.run().path()});
  EXPECT_EQ(ended.code, 0);
  EXPECT_TRUE(has(ended.output, "died before its first step")) << ended.output;
  EXPECT_TRUE(has(ended.output, "there is no checkpoint")) << ended.output;
}

TEST_F(SwarmStatus, OneThatIsStoppedAtOnceIsNotShownAsTraining) {
  const SwarmFolder swarm({"run.steps=1000000"});
  Program launch = swarm.start("launch", swarm.emulating(2, 4));
  ASSERT_TRUE(swarm.wait_for_step(2)) << launch.output();
  Program watch(swarm.temp(), "watch", {"status", swarm.run().path(), "--watch"});
  ASSERT_TRUE(watch.wait_for_output("step "));
  EXPECT_EQ(run_program(swarm.temp(), "stop", {"stop", "--now", swarm.run().path()}).code, 0);
  launch.wait();
  EXPECT_EQ(watch.wait(), 1) << watch.output();
  const Ended ended = run_program(swarm.temp(), "ended", {"status", swarm.run().path()});
  EXPECT_TRUE(has(ended.output, "small: stopped")) << ended.output;
}

}  // namespace
}  // namespace swarmline
