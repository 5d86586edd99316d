#include "node/supervised_process.h"

#include <gtest/gtest.h>

#include "engine/store/files.h"
#include "tests/runtime/comes_true.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

TEST(SupervisedProcessTest, IsStartedAgainWithTheSameArgumentsUntilItIsGivenUp) {
  const TempFolder folder;
  const Instant start{};
  auto process = SupervisedProcess::start(
      "it",
      {.program = "/bin/sh",
       .arguments = {"-c", "echo lived; exit 1"},
       .output_file = folder.at("out")},
      {.attempts_max = 2, .soon = 30s, .pause_first = 10s, .pause_max = 10s}, start);
  ASSERT_TRUE(process) << process.error().what;
  const auto ends = [&] {
    std::optional<int> code;
    EXPECT_TRUE(comes_true([&] { return (code = process->poll()).has_value(); }));
    EXPECT_FALSE(process->poll()) << "told once";
    return code;
  };
  EXPECT_EQ(ends(), 1);
  EXPECT_FALSE(process->is_alive());
  EXPECT_EQ(process->plan_restart(start + 1s), 0s);
  EXPECT_TRUE(process->is_alive());
  EXPECT_TRUE(process->start_if_due(start + 1s).value());

  EXPECT_EQ(ends(), 1);
  EXPECT_EQ(process->plan_restart(start + 2s), 10s);
  EXPECT_FALSE(process->start_if_due(start + 11s).value());
  EXPECT_TRUE(process->start_if_due(start + 12s).value());
  EXPECT_FALSE(process->start_if_due(start + 13s).value()) << "once";

  EXPECT_EQ(ends(), 1);
  EXPECT_EQ(process->plan_restart(start + 13s), std::nullopt);
  EXPECT_FALSE(process->is_alive());
  EXPECT_EQ(*read_text_file(folder.at("out"), 100), "lived\nlived\nlived\n");
}

}  // namespace
}  // namespace swarmline
