#include "tools/chaos/chaos_plan.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

Result<ChaosPlan> read(const std::string& text) {
  return parse_chaos_plan("chaos_format = 1\n" + text, "plan.toml");
}

std::string mistake(const std::string& text) {
  const auto plan = read(text);
  return plan ? "none" : plan.error().what;
}

TEST(ChaosPlanTest, EveryKeyIsRead) {
  const auto plan = read(R"([plan]
name = "all"
[faults.b]
kind = "slow"
who = "one of stage 2"
at_step = 7
for_seconds = 2.5
factor = 3
[faults.a]
kind = "corrupt"
who = "stage of newcomer"
at_phase = "download"
at_step = 1
flips = 0.5
[faults.c]
kind = "join"
at_seconds = 9
[faults.d]
kind = "command"
who = "coordinator"
at_phase = "commit"
command = "tc qdisc add dev eth0 root netem loss 5%"
undo = "tc qdisc del dev eth0 root"
[random_faults]
count = 3
after_seconds = 4
over_seconds = 60
seed = 5
longest_seconds = 2
factor = 8
kinds = ["cut", "stop"]
)");
  ASSERT_TRUE(plan) << plan.error().what;
  EXPECT_EQ(plan->name, "all");
  ASSERT_EQ(plan->faults.size(), 4U);
  const ChaosFault& slow = plan->faults[0];  // in the order of the lines
  EXPECT_EQ(slow.name, "b");
  EXPECT_EQ(slow.kind, ChaosKind::kSlow);
  EXPECT_EQ(to_string(slow.who), "one of stage 2");
  EXPECT_EQ(slow.at_step, 7U);
  EXPECT_EQ(slow.seconds, 2.5);
  EXPECT_EQ(slow.factor, 3);
  EXPECT_FALSE(slow.needs_newcomer());
  const ChaosFault& corrupt = plan->faults[1];
  EXPECT_EQ(to_string(corrupt.who), "stage of newcomer");
  EXPECT_EQ(corrupt.phase, ChaosPhase::kDownload);
  EXPECT_EQ(corrupt.flips, 0.5);
  EXPECT_TRUE(corrupt.needs_newcomer());
  EXPECT_EQ(plan->faults[2].kind, ChaosKind::kJoin);
  EXPECT_EQ(plan->faults[2].at_seconds, 9);
  EXPECT_EQ(plan->faults[3].kind, ChaosKind::kCommand);
  EXPECT_EQ(plan->faults[3].command, "tc qdisc add dev eth0 root netem loss 5%");
  EXPECT_EQ(plan->faults[3].undo, "tc qdisc del dev eth0 root");
  EXPECT_EQ(plan->random.count, 3U);
  EXPECT_EQ(plan->random.after, 4);
  EXPECT_EQ(plan->random.seconds, 60);
  EXPECT_EQ(plan->random.seed, 5U);
  EXPECT_EQ(plan->random.longest, 2);
  EXPECT_EQ(plan->random.factor, 8);
  EXPECT_EQ(plan->random.kinds, (std::vector{ChaosKind::kCut, ChaosKind::kStop}));
  EXPECT_TRUE(plan->hurts_links());
}

TEST(ChaosPlanTest, LinksAreUsedOnlyWhereTheyAreHurt) {
  const auto plan = read("[faults.a]\nkind = \"stop\"\nwho = \"coordinator\"\n");
  ASSERT_TRUE(plan) << plan.error().what;
  EXPECT_FALSE(plan->hurts_links());
}

TEST(ChaosPlanTest, OneStandsByForACoordinatorThatIsKilled) {
  for (const auto& [fault, stands_by] :
       {std::pair("kind = \"kill\"\nwho = \"coordinator\"\n", true),
        std::pair("kind = \"restart\"\nwho = \"coordinator\"\n", false),
        std::pair("kind = \"kill\"\nwho = \"stage 1\"\n", false)}) {
    const auto plan = read(std::string("[faults.a]\n") + fault);
    ASSERT_TRUE(plan) << plan.error().what;
    EXPECT_EQ(plan->ends_coordinator(), stands_by) << fault;
  }
}

TEST(ChaosPlanTest, MistakesAreNamedByLine) {
  EXPECT_EQ(mistake("[faults.a]\nkind = \"kil\"\nwho = \"coordinator\"\n"),
            "plan.toml:3: faults.a.kind: found \"kil\", expected one of kill, restart, stop, slow, "
            "cut, corrupt, join, half-open, isolate, disk-full, disk-slow, journal-refused, "
            "command");
  EXPECT_NE(mistake("[faults.a]\nkind = \"command\"\nwho = \"coordinator\"\n")
                .find("faults.a.command: is missing"),
            std::string::npos);
  EXPECT_NE(mistake("[faults.a]\nkind = \"kill\"\nwho = \"all\"\n")
                .find("plan.toml:4: faults.a.who: found \"all\", expected \"coordinator\""),
            std::string::npos);
  EXPECT_NE(
      mistake("[faults.a]\nkind = \"kill\"\nwho = \"newcomer\"\n").find("at_phase is missing"),
      std::string::npos);
  EXPECT_NE(mistake("[faults.a]\nkind = \"kill\"\nwho = \"stage 1\"\nat_phase = \"joining\"\n")
                .find("who joins is \"newcomer\""),
            std::string::npos);
  EXPECT_NE(mistake("[faults.a]\nkind = \"stop\"\nwho = \"stage 1\"\nfor_second = 1\n")
                .find("there is no such key; did you mean a.for_seconds?"),
            std::string::npos);
  EXPECT_NE(mistake("[random_faults]\ncount = 3\n").find("random_faults.over_seconds"),
            std::string::npos);
  EXPECT_NE(mistake("[random_faults]\ncount = 1\nover_seconds = 1\nkinds = [\"kill\"]\n")
                .find("without kill, join and command"),
            std::string::npos);
  EXPECT_NE(parse_chaos_plan("[plan]\n", "plan.toml").error().what.find("chaos_format"),
            std::string::npos);
}

TEST(ChaosPlanTest, WhatTheRunCannotHaveIsSaidBefore) {
  RunConfig config;
  config.pipeline.stages = 2;
  config.pipeline.peers = {2, 1};
  config.run.steps = 10;
  const auto check = [&](const std::string& text) {
    const auto plan = read(text);
    EXPECT_TRUE(plan) << plan.error().what;
    const auto checked = check_chaos_plan(*plan, config, "plan.toml");
    return checked ? "none" : checked.error().what;
  };
  EXPECT_EQ(check("[faults.a]\nkind = \"kill\"\nwho = \"stage 2\"\n"),
            "plan.toml:3: faults.a.who: the run has 2 stages, counted from 0");
  EXPECT_NE(check("[faults.a]\nkind = \"kill\"\nwho = \"stage 1\"\nat_phase = \"checkpoint\"\n")
                .find("checkpoint.every_steps"),
            std::string::npos);
  EXPECT_NE(check("[faults.a]\nkind = \"kill\"\nwho = \"stage 1\"\nat_step = 11\n")
                .find("the run has 10 steps"),
            std::string::npos);
  EXPECT_EQ(check("[faults.a]\nkind = \"kill\"\nwho = \"stage 1\"\nat_step = 10\n"), "none");
  config.pipeline.stages = 1;
  EXPECT_NE(check("[faults.a]\nkind = \"kill\"\nwho = \"stage 0\"\nat_phase = \"forward\"\n")
                .find("sends no activations"),
            std::string::npos);
}

TEST(ChaosPlanTest, ThePlansOfTheRepositoryAreWhole) {
  const auto plan = load_chaos_plan(std::string(SWARMLINE_SOURCE_DIR) + "/configs/chaos/tiny.toml");
  ASSERT_TRUE(plan) << plan.error().what;
  EXPECT_EQ(plan->faults.size(), 3U);
}

TEST(ChaosPlanTest, APointIsWhereTheVictimTakesPart) {
  ChaosFault fault;
  fault.phase = ChaosPhase::kReduce;
  fault.who.kind = ChaosTarget::Kind::kOneOfStage;
  EXPECT_EQ(points_of(fault, false).front().kind, MessageKind::kReduceChunk);
  EXPECT_EQ(points_of(fault, true).front().kind, MessageKind::kSeal);
  EXPECT_FALSE(coordinator_comes_to(fault));
  fault.who.kind = ChaosTarget::Kind::kCoordinator;
  EXPECT_EQ(points_of(fault, false).front(),
            (ChaosPoint{.kind = MessageKind::kReduced, .sent = false}));
  EXPECT_TRUE(coordinator_comes_to(fault));
  fault.phase = ChaosPhase::kForward;  // it takes no part in that: a peer comes there
  EXPECT_FALSE(coordinator_comes_to(fault));
  EXPECT_EQ(points_of(fault, false).size(), 2U);
}

}  // namespace
}  // namespace swarmline
