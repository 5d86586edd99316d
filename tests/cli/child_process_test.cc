#include "cli/child_process.h"

#include <chrono>
#include <filesystem>
#include <signal.h>
#include <stdlib.h>
#include <thread>

#include <gtest/gtest.h>

#include "engine/store/files.h"

namespace swarmline {
namespace {

class ChildProcessTest : public ::testing::Test {
 protected:
  ChildProcessTest() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "swarmline-child-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  ~ChildProcessTest() override { std::filesystem::remove_all(folder_); }

  ChildProcess shell(const std::string& script) {
    auto child = ChildProcess::start(
        {.program = "/bin/sh", .arguments = {"-c", script}, .output_file = folder_ + "/out"});
    EXPECT_TRUE(child);
    return std::move(*child);
  }
  static int wait(ChildProcess& child) {
    for (int i = 0; i < 1000; ++i) {
      if (const auto code = child.poll()) return *code;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return -1;
  }

  std::string folder_;
};

TEST_F(ChildProcessTest, TellsItsExitCodeAndKeepsItsOutput) {
  ChildProcess child = shell("echo out; echo err >&2; exit 7");
  EXPECT_EQ(wait(child), 7);
  EXPECT_EQ(wait(child), 7);
  EXPECT_EQ(*read_text_file(folder_ + "/out", 100), "out\nerr\n");
}

TEST_F(ChildProcessTest, SignalsAreToldAs128AndMore) {
  ChildProcess child = shell("sleep 100");
  EXPECT_FALSE(child.poll());
  child.send_signal(SIGTERM);
  EXPECT_EQ(wait(child), 128 + SIGTERM);
  child.send_signal(SIGTERM);  // nothing to signal
}

TEST_F(ChildProcessTest, HasAGroupOfItsOwn) {
  ChildProcess child = shell("sleep 100");
  for (int i = 0; i < 500 && ::getpgid(child.pid()) != child.pid(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(::getpgid(child.pid()), child.pid());
}

TEST_F(ChildProcessTest, DestructionKills) {
  pid_t pid = 0;
  {
    ChildProcess child = shell("sleep 100");
    pid = child.pid();
    ChildProcess moved = std::move(child);
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST_F(ChildProcessTest, MissingProgramEndsWith127) {
  auto child = ChildProcess::start(
      {.program = "/no/such/program", .arguments = {}, .output_file = folder_ + "/out"});
  ASSERT_TRUE(child);
  EXPECT_EQ(wait(*child), 127);
  EXPECT_FALSE(ChildProcess::start(
      {.program = "/bin/sh", .arguments = {}, .output_file = folder_ + "/no/such/file"}));
}

}  // namespace
}  // namespace swarmline
