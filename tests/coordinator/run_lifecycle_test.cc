#include "pipeline/coordinator/run/run_lifecycle.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace swarmline {
namespace {

TEST(RunLifecycle, BeginsFormingAndEndsWithItsSentence) {
  RunLifecycle life;
  EXPECT_TRUE(life.is<life::Forming>());
  EXPECT_EQ(life.shown(), "waiting");
  life.move_to(life::Training{});
  EXPECT_TRUE(life.is_running());
  life.move_to(life::FinalCheckpoint{});
  EXPECT_EQ(life.shown(), "checkpointing");
  life.move_to(life::Ended{.exit_code = 0, .sentence = "finished 8 steps"});
  EXPECT_TRUE(life.is_over());
  EXPECT_EQ(life.shown(), "done");
  EXPECT_EQ(life.sentence(), "finished 8 steps");
}

TEST(RunLifecycle, AnInterruptedRunIsShownAsStopped) {
  RunLifecycle life;
  life.move_to(life::Training{});
  life.move_to(life::Ended{.exit_code = 130, .sentence = "interrupted"});
  EXPECT_EQ(life.shown(), "stopped");
}

TEST(RunLifecycle, NothingFollowsAnEnd) {
  using enum RunState;
  const RunLifecycle::Table& table = RunLifecycle::table();
  for (const RunState state : table.states()) {
    for (const RunState over : {kRestartingItself, kSteppedDown, kEnded})
      EXPECT_FALSE(table.allows(over, state)) << table.name(over);
    EXPECT_TRUE(std::ranges::any_of(table.states(),
                                    [&](RunState from) { return table.allows(from, state); }))
        << "nothing leads to " << table.name(state);
  }
}

using RunLifecycleDeathTest = ::testing::Test;
TEST(RunLifecycleDeathTest, WhatTheTableDoesNotHaveIsABrokenInvariant) {
  RunLifecycle life;
  EXPECT_DEATH(life.move_to(life::FinalCheckpoint{}), "Forming -> FinalCheckpoint");
}

// People read the table on a page.
TEST(RunLifecycle, ThePageHasTheSameTable) {
  std::ifstream page(std::string(SWARMLINE_SOURCE_DIR) + "/pipeline/coordinator/README.md");
  std::stringstream text;
  text << page.rdbuf();
  const RunLifecycle::Table& table = RunLifecycle::table();
  for (const Transitions<RunState>& row : table.rows())
    for (const RunState to : table.states()) {
      if (!row.to.has(to)) continue;
      std::string line = "| ";
      line.append(table.name(row.from)).append(" | ").append(table.name(to));
      line.append(" | ").append(row.when).append(" |\n");
      EXPECT_NE(text.str().find(line), std::string::npos) << line;
    }
}

}  // namespace
}  // namespace swarmline
