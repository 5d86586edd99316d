#include "tests/cli/program.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

namespace swarmline {
namespace {

// Equal to the file, or written to it when SWARMLINE_UPDATE_GOLDEN is set.
void expect_golden(const std::string& text, const std::string& name) {
  const std::string path = std::string(SWARMLINE_SOURCE_DIR) + "/tests/golden/cli/" + name;
  if (std::getenv("SWARMLINE_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  std::ostringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(text, expected.str());
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Program, HelpTeaches) {
  const ScratchFolder folder;
  const Ran all = folder.run({"--help"});
  EXPECT_EQ(all.exit_code, 0);
  for (const char* part : {"launch", "coordinator", "peer", "status", "stop", "checkpoint",
                           "config", "Examples:", "Exit codes:"}) {
    EXPECT_TRUE(has(all.out, part)) << part;
  }
  for (const char* command :
       {"launch", "coordinator", "peer", "status", "stop", "checkpoint diff", "config check"}) {
    std::vector<std::string> words;
    std::istringstream split(command);
    for (std::string word; split >> word;) words.push_back(word);
    words.emplace_back("--help");
    const Ran one = folder.run(words);
    EXPECT_EQ(one.exit_code, 0) << command;
    EXPECT_TRUE(has(one.out, "Example")) << command;
  }
  EXPECT_TRUE(has(folder.run({"version"}).out, "swarmline "));
}

struct Mistake {
  std::vector<std::string> arguments;
  int exit_code;
  std::string sentence;  // a part of standard error
};

class UserMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(UserMistake, IsOneSentence) {
  const ScratchFolder folder;
  folder.write_small_run();
  folder.write("peer.toml", "config_version = 1\n[peer]\nlisten = \"127.0.0.1:7401\"\n");
  const Ran ran = folder.run(GetParam().arguments);
  EXPECT_EQ(ran.exit_code, GetParam().exit_code);
  EXPECT_TRUE(has(ran.err, GetParam().sentence)) << ran.err;
  EXPECT_TRUE(has(ran.err, "swarmline: ")) << ran.err;
  EXPECT_FALSE(folder.has("runs")) << "a mistake left a run folder behind";
}

INSTANTIATE_TEST_SUITE_P(
    Program, UserMistake,
    ::testing::Values(
        Mistake{{}, 2, "no command given; try"},
        Mistake{{"lauch"}, 2, "there is no command \"lauch\", did you mean launch?"},
        Mistake{{"launch"}, 2, "config is required"},
        Mistake{{"launch", "run.toml", "--frish"}, 2, "\"swarmline launch --help\""},
        Mistake{{"launch", "none.toml"}, 2, "none.toml: found no such file"},
        Mistake{{"launch", "run.toml", "--set", "run.stepz=3"}, 2, "did you mean steps?"},
        Mistake{{"launch", "run.toml", "--set", "pipeline.stages=9"}, 2, "stages"},
        Mistake{{"launch", "run.toml", "--set", "data.files=[\"none/*\"]"},
                2,
                "no file matches \"none/*\""},
        Mistake{{"launch", "run.toml", "--emulate", "7:0=1/2"}, 2, "the run has 2 stages"},
        Mistake{{"launch", "run.toml", "--emulate", "fast"},
                2,
                "expected STAGE:PEER=FORWARD_MS/BACKWARD_MS"},
        Mistake{{"launch", "run.toml", "--peer-config", "peer.toml"}, 2, "expected port 0"},
        Mistake{{"launch", "run.toml", "--permute-sums", "1"}, 2, "requires --reference"},
        Mistake{{"launch", "run.toml", "--set", "net.listen=\"0.0.0.0:0\""}, 2, "insecure"},
        Mistake{{"peer", "--join", "nowhere"}, 2, "expected HOST:PORT"},
        Mistake{{"peer", "--join", "127.0.0.1:1", "--threads", "many"}, 2, "--threads: found"},
        Mistake{{"peer", "--join", "127.0.0.1:1"}, 1, "no coordinator answers at 127.0.0.1:1"},
        Mistake{{"status"}, 2, "there is no run under runs/ here"},
        Mistake{{"status", "127.0.0.1:1"}, 1, "no coordinator answers at 127.0.0.1:1"},
        Mistake{{"stop", "nothing"}, 2, "nothing is neither a run folder nor HOST:PORT"},
        Mistake{{"config"}, 2, "subcommand is required"},
        Mistake{{"config", "check", "run.toml", "--set", "model.heads=3"}, 2, "heads"},
        Mistake{{"checkpoint", "diff", "a", "b"}, 2, "a"}));

TEST(Program, ConfigCheckIsGolden) {
  const ScratchFolder folder;
  folder.write_small_run();
  const Ran text = folder.run({"config", "check", "run.toml"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  expect_golden(text.out, "config_check.txt");
  const Ran json = folder.run({"config", "check", "run.toml", "--json"});
  EXPECT_EQ(json.exit_code, 0) << json.err;
  expect_golden(json.out, "config_check.json");
}

TEST(Program, WhatConfigCheckPrintsIsTheSameConfig) {
  const ScratchFolder folder;
  folder.write_small_run();
  folder.write("again.toml", folder.run({"config", "check", "run.toml"}).out);
  EXPECT_EQ(folder.run({"config", "check", "again.toml"}).out,
            folder.run({"config", "check", "run.toml"}).out);
}

TEST(Program, TakenPortIsSaid) {
  const ScratchFolder folder;
  folder.write_small_run();
  std::string address;
  const Ran first = folder.run_and(
      {"coordinator", "run.toml"}, [&] { return folder.has("runs/small/coordinator.address"); },
      [&](pid_t pid) {
        address = folder.read("runs/small/coordinator.address");
        address.pop_back();
        const ScratchFolder other;
        other.write_small_run();
        const Ran second =
            other.run({"coordinator", "run.toml", "--set", "net.listen=\"" + address + "\""});
        EXPECT_EQ(second.exit_code, 2);
        EXPECT_TRUE(has(second.err, address)) << second.err;
        EXPECT_TRUE(has(second.err, "--set net.listen=HOST:PORT")) << second.err;
        const Ran stopped = folder.run({"stop", "runs/small"});
        EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
        (void)pid;
      });
  EXPECT_EQ(first.exit_code, 0) << first.err;
}

}  // namespace
}  // namespace swarmline
