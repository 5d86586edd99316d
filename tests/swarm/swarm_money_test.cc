// Real runs with prices: what they have cost goes on over their coordinators, and they end with a
// checkpoint when their budget is spent.
#include <csignal>

#include <gtest/gtest.h>

#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

class SwarmMoney : public testing::Test {
 protected:
  SwarmMoney() { adopt_orphans(); }
  ~SwarmMoney() override { expect_nothing_left(); }

  // What they send costs most: a budget is spent after so many steps, however slow the machine is.
  static std::vector<std::string> priced(const SwarmFolder& swarm) {
    return {"--peer-config",
            swarm.temp().write("peer.toml",
                               "config_version = 1\n[peer]\nprice = 36\negress_price = 1000\n"
                               "emulate = { forward_ms = 3, backward_ms = 6 }\n")};
  }
  static std::vector<std::string> run_with(std::vector<std::string> more) {
    more.insert(more.end(), {"run.steps=100000", "pipeline.peers=1", "model.dtype=fp64",
                             "optimizer.schedule=constant", "checkpoint.every_steps=1000"});
    return more;
  }
};

TEST_F(SwarmMoney, ARunEndsWithACheckpointWhenItsBudgetIsSpent) {
  const SwarmFolder swarm(run_with({"money.budget=6", "money.coordinator_price=3.6"}));
  const Ended first = swarm.launch(priced(swarm));
  ASSERT_EQ(first.code, 0) << first.output << swarm.logs();
  EXPECT_TRUE(first.output.contains("the budget of 6.00 USD is spent: the run has cost "))
      << first.output;
  EXPECT_TRUE(first.output.contains("--set money.budget=MORE")) << first.output;
  const auto status = swarm.status();
  ASSERT_TRUE(status && status->cost);
  EXPECT_EQ(status->state, "done");
  EXPECT_TRUE(status->sentence.contains("drained after step ")) << status->sentence;
  EXPECT_GE(status->cost->total, 6);
  EXPECT_GT(status->cost->machines, 0);
  EXPECT_GT(status->cost->coordinator, 0);
  EXPECT_GT(status->cost->egress_bytes, 0U);
  EXPECT_GT(status->cost->egress, 0);
  EXPECT_GT(status->cost->idle, 0);
  EXPECT_GT(status->cost->waiting, 0);
  EXPECT_EQ(status->cost->since_step, 0U);
  EXPECT_EQ(status->cost->unpriced, 0U);
  EXPECT_EQ(swarm.log("budget").size(), 1U) << "what is left of it is said once, before";
  EXPECT_GT(swarm.log("step").back()["cost"].number_or(0), 1);
  expect_reference_as_far_as_it_got(swarm);

  const Ended again = swarm.launch(priced(swarm));
  EXPECT_EQ(again.code, 2) << again.output;
  EXPECT_TRUE(again.output.contains("raise money.budget to go on")) << again.output;

  std::vector<std::string> more = priced(swarm);
  more.insert(more.end(), {"--set", "money.budget=12"});
  const Ended second = swarm.launch(more);
  ASSERT_EQ(second.code, 0) << second.output << swarm.logs();
  const auto then = swarm.status();
  ASSERT_TRUE(then && then->cost);
  EXPECT_GE(then->cost->total, 12);
  EXPECT_LT(then->cost->total - status->cost->total, 12) << "it has gone on counting";
  EXPECT_GT(then->step, status->step);
}

TEST_F(SwarmMoney, ACoordinatorThatIsStartedAgainCountsOn) {
  const SwarmFolder swarm(run_with({"money.budget=15"}));
  Program launch = swarm.start("launch", priced(swarm));
  const auto before = swarm.wait_until(
      [](const RunStatus& now) { return now.step >= 3 && now.cost && now.cost->total > 3; });
  ASSERT_TRUE(before) << launch.output() << swarm.logs();
  ::kill(process_with(launch.pid(), "swarmline coordinator"), SIGKILL);
  const auto after =
      swarm.wait_until([&](const RunStatus& now) { return now.step > before->step + 2; });
  ASSERT_TRUE(after && after->cost) << launch.output() << swarm.logs();
  EXPECT_GT(after->cost->total, 3);
  EXPECT_EQ(after->cost->since_step, 0U);
  EXPECT_EQ(launch.wait(), 0) << launch.output() << swarm.logs();
  EXPECT_EQ(swarm.log("begun_again").size(), 1U);
  EXPECT_TRUE(launch.output().contains("the budget of 15.00 USD is spent")) << launch.output();
}

// The only peer of a stage is killed, and there is no checkpoint: all its steps are paid again.
TEST_F(SwarmMoney, StepsThatAreComputedAgainAreNamed) {
  const SwarmFolder swarm(run_with({}));
  Program launch = swarm.start("launch", priced(swarm));
  const auto before = swarm.wait_for_step(8);
  ASSERT_TRUE(before && before->cost) << launch.output() << swarm.logs();
  EXPECT_EQ(before->cost->steps_again, 0U);
  ::kill(process_with(launch.pid(), "--name peer-b"), SIGKILL);
  const auto after = swarm.wait_until(
      [&](const RunStatus& now) { return now.era == 1 && now.step > before->step + 20; });
  ASSERT_TRUE(after && after->cost) << launch.output() << swarm.logs();
  EXPECT_GE(after->cost->steps_again, before->step);
  EXPECT_GT(after->cost->again, 0);
  EXPECT_LT(after->cost->again + after->cost->idle + after->cost->waiting, after->cost->total);
  EXPECT_GT(after->cost->total, before->cost->total);
  launch.signal(SIGINT);
  EXPECT_EQ(launch.wait(), 0) << launch.output() << swarm.logs();
  EXPECT_TRUE(launch.output().contains("steps computed again ")) << launch.output();
}

TEST_F(SwarmMoney, ARunEndsAfterItsHoursWithoutAnyPrice) {
  const SwarmFolder swarm(run_with({"money.budget_hours=0.0005"}));
  const Ended run = swarm.launch(swarm.emulating(3, 6));
  ASSERT_EQ(run.code, 0) << run.output << swarm.logs();
  EXPECT_TRUE(run.output.contains("the budget of 0.0005 hours is spent")) << run.output;
  const auto status = swarm.status();
  ASSERT_TRUE(status);
  EXPECT_FALSE(status->cost);
  const Ended again = swarm.launch(swarm.emulating(3, 6));
  EXPECT_EQ(again.code, 2) << again.output;
  EXPECT_TRUE(again.output.contains("raise money.budget_hours")) << again.output;
}

}  // namespace
}  // namespace swarmline
