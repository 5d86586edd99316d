// A user's command gets the run's lines, and whatever it does, nobody waits for it.
#include "node/log_command.h"

#include <signal.h>
#include <string>

#include <gtest/gtest.h>

#include "engine/runtime/asio_runtime.h"
#include "engine/store/files.h"
#include "tests/runtime/comes_true.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kFileBytesMax = 64 << 20;

class LogCommandTest : public ::testing::Test {
 protected:
  LogCommand::Options running(const std::string& command) const {
    return {.command = "cd '" + folder.path() + "'; " + command,
            .output_file = folder.at("log-command.log"),
            .grace = 20s,
            .restarts = {.attempts_max = 3, .soon = 30s, .pause_first = 20ms, .pause_max = 40ms}};
  }
  std::string text(const std::string& name) const {
    return read_text_file(folder.at(name), kFileBytesMax).value_or("");
  }
  void run_for(Duration duration) {
    runtime.call_after(duration, [this] { runtime.request_stop(); });
    runtime.run();
  }
  template <typename Condition>
  bool run_until(Condition condition) {
    for (int tries = 0; tries < 1000 && !condition(); ++tries) run_for(20ms);
    return condition();
  }
  // As a coordinator ends: waits until the command is gone.
  void end(LogCommand& command) {
    bool done = false;
    command.end([&] { done = true; });
    EXPECT_TRUE(run_until([&] { return done; }));
  }

  TempFolder folder;
  AsioRuntime runtime;
};

TEST_F(LogCommandTest, ItGetsEachLineOnItsStandardInput) {
  LogCommand command(runtime, running("cat > got; echo ended >> got"));
  for (int i = 0; i < 100; ++i) command.line("{\"step\":" + std::to_string(i) + "}");
  end(command);
  const std::string got = text("got");
  EXPECT_TRUE(got.starts_with("{\"step\":0}\n{\"step\":1}\n")) << got.substr(0, 100);
  EXPECT_TRUE(got.ends_with("{\"step\":99}\nended\n")) << "it read all, and then the end";
  EXPECT_EQ(command.dropped(), 0U);
}

TEST_F(LogCommandTest, ASlowOneLosesLinesAndHoldsNobodyUp) {
  LogCommand::Options options = running("read first; echo \"$first\" > got; sleep 1000");
  options.queue_bytes_max = 1000;
  options.grace = 100ms;
  LogCommand command(runtime, options);
  for (int i = 0; i < 10'000; ++i) command.line(std::string(99, 'x'));  // more than a pipe holds
  EXPECT_GT(command.dropped(), 8000U);
  EXPECT_LT(command.dropped(), 10'000U);
  EXPECT_TRUE(run_until([&] { return text("got").size() == 100; }));
  end(command);  // after its grace it is ended
}

TEST_F(LogCommandTest, ADeadOneIsStartedAgainAndGetsWhatItMissed) {
  LogCommand command(runtime, running("echo started >> got; read line; echo \"$line\" >> got"));
  command.line("one");
  ASSERT_TRUE(run_until([&] { return text("got") == "started\none\nstarted\n"; })) << text("got");
  command.line("two");
  ASSERT_TRUE(run_until([&] { return text("got").contains("two\n"); })) << text("got");
  end(command);
}

TEST_F(LogCommandTest, OneThatKeepsDyingIsGivenUp) {
  LogCommand command(runtime, running("echo started >> got; exit 3"));
  ASSERT_TRUE(run_until([&] {
    command.line("x");
    return command.dropped() > 100;
  }));
  EXPECT_EQ(text("got"), "started\nstarted\nstarted\nstarted\n") << "and 3 more times";
  end(command);
}

TEST_F(LogCommandTest, OneThatIsNotThereSaysSoInItsFile) {
  LogCommand command(runtime, running("no-such-program-at-all"));
  ASSERT_TRUE(run_until([&] { return text("log-command.log").contains("not found"); }));
  end(command);
}

TEST_F(LogCommandTest, OneThatClosesItsInputDoesNotEndThisProcess) {
  LogCommand::Options options = running("exec 0<&-; echo closed >> got; sleep 1000");
  options.grace = 100ms;
  LogCommand command(runtime, options);
  ASSERT_TRUE(run_until([&] { return text("got").contains("closed"); }));
  for (int i = 0; i < 100; ++i) command.line("into a pipe that nobody reads");
  ASSERT_TRUE(run_until([&] { return text("got").contains("closed\nclosed"); })) << "begun again";
  end(command);
}

TEST_F(LogCommandTest, OneThatDoesNotEndIsEnded) {
  LogCommand::Options options = running("trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done");
  options.grace = 50ms;
  LogCommand command(runtime, options);
  ASSERT_TRUE(run_until([&] { return text("pid").ends_with("\n"); }));
  end(command);
  EXPECT_NE(::kill(static_cast<pid_t>(std::stol(text("pid"))), 0), 0) << "it is gone";
}

}  // namespace
}  // namespace swarmline
