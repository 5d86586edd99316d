#include "pipeline/coordinator/run/run_lifecycle.h"

#include <fstream>
#include <set>
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

TEST(RunLifecycle, AnInterruptedRunShowsWhereItWas) {
  RunLifecycle life;
  life.move_to(life::Training{});
  life.move_to(life::Ended{.exit_code = 130, .sentence = "interrupted"});
  EXPECT_EQ(life.shown(), "training");
}

TEST(RunLifecycle, NothingFollowsAnEnd) {
  const std::set<std::string_view> over = {"RestartingItself", "SteppedDown", "Ended"};
  std::set<std::string_view> named;
  for (const RunLifecycle::Transition& known : RunLifecycle::transitions()) {
    EXPECT_FALSE(over.contains(known.from)) << known.from;
    named.insert(known.from);
    named.insert(known.to);
  }
  EXPECT_EQ(named.size(), RunLifecycle::kNames.size()) << "a state that nothing leads to";
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
  for (const RunLifecycle::Transition& known : RunLifecycle::transitions()) {
    std::string row = "| ";
    row.append(known.from).append(" | ").append(known.to).append(" | ").append(known.when);
    EXPECT_NE(text.str().find(row + " |\n"), std::string::npos) << row;
  }
}

}  // namespace
}  // namespace swarmline
