#include "node/child_process.h"

#include <filesystem>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "engine/store/files.h"
#include "tests/runtime/comes_true.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class ChildProcessTest : public ::testing::Test {
 protected:
  ChildProcess shell(const std::string& script) {
    auto child = ChildProcess::start(
        {.program = "/bin/sh", .arguments = {"-c", script}, .output_file = folder_.at("out")});
    EXPECT_TRUE(child);
    return std::move(*child);
  }
  static int wait(ChildProcess& child) {
    return comes_true([&] { return child.poll().has_value(); }) ? *child.poll() : -1;
  }

  const TempFolder folder_;
};

TEST_F(ChildProcessTest, TellsItsExitCodeAndKeepsItsOutput) {
  ChildProcess child = shell("echo out; echo err >&2; exit 7");
  EXPECT_EQ(wait(child), 7);
  EXPECT_EQ(wait(child), 7);
  EXPECT_EQ(*read_text_file(folder_.at("out"), 100), "out\nerr\n");
}

TEST_F(ChildProcessTest, WhoDoesNotEndInTimeIsKilled) {
  ChildProcess child = shell("sleep 100");
  EXPECT_EQ(child.wait_or_kill(10ms), 128 + SIGKILL);
}

TEST_F(ChildProcessTest, OnlyItsOwnerReadsWhatItPrints) {
  ChildProcess child = shell("echo 'swarmline peer --join swarm1...'");
  wait(child);
  EXPECT_EQ(std::filesystem::status(folder_.at("out")).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(ChildProcessTest, WritesToAFileOfTheCallersAndIsWaitedFor) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  auto child = ChildProcess::start({.program = "/bin/sh",
                                    .arguments = {"-c", "echo out; echo err >&2; exit 7"},
                                    .output_file = folder_.at("errors"),
                                    .output = pipe[1]});
  ::close(pipe[1]);
  ASSERT_TRUE(child);
  char room[16];
  EXPECT_EQ(::read(pipe[0], room, sizeof room), 4);
  EXPECT_EQ(::read(pipe[0], room, sizeof room), 0);
  EXPECT_EQ(child->wait_or_kill(1min), 7);
  EXPECT_EQ(child->wait_or_kill(1min), 7);
  EXPECT_EQ(*read_text_file(folder_.at("errors"), 100), "err\n");
  ::close(pipe[0]);
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
  EXPECT_TRUE(comes_true([&] { return ::getpgid(child.pid()) == child.pid(); }));
}

// Else what the parent closes stays open, and nobody hears of its end.
TEST_F(ChildProcessTest, GetsNoneOfTheParentsFiles) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  ChildProcess child = shell("sleep 100");
  ::close(pipe[1]);
  pollfd end{.fd = pipe[0], .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&end, 1, 10'000), 1) << "the child holds the other end";
  EXPECT_NE(end.revents & POLLHUP, 0);
  ::close(pipe[0]);
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
      {.program = "/no/such/program", .arguments = {}, .output_file = folder_.at("out")});
  ASSERT_TRUE(child);
  EXPECT_EQ(wait(*child), 127);
  EXPECT_FALSE(ChildProcess::start(
      {.program = "/bin/sh", .arguments = {}, .output_file = folder_.at("no/such/file")}));
}

}  // namespace
}  // namespace swarmline
