#include "tests/cli/program.h"

#include <algorithm>
#include <sstream>
#include <sys/stat.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/golden/golden.h"

namespace swarmline {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Program, HelpTeaches) {
  const ScratchFolder folder;
  const Ran all = folder.run({"--help"});
  EXPECT_EQ(all.exit_code, 0);
  for (const char* part :
       {"launch", "coordinator", "peer", "status", "stop", "checkpoint", "config", "bench", "plan",
        "fleet", "simulate", "chaos", "Examples:", "Exit codes:"}) {
    EXPECT_TRUE(has(all.out, part)) << part;
  }
  for (const char* command : {"launch", "coordinator", "peer", "status", "stop", "checkpoint diff",
                              "config check", "bench allreduce", "bench codec", "bench ratio",
                              "plan", "fleet plan", "fleet convert", "simulate", "chaos"}) {
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

TEST(Program, HelpExplainsTheCommandThatFollowsIt) {
  const ScratchFolder folder;
  EXPECT_TRUE(has(folder.run({"help"}).out, "Exit codes"));
  EXPECT_EQ(folder.run({"help", "launch"}).out, folder.run({"launch", "--help"}).out);
  EXPECT_EQ(folder.run({"help", "bench", "ratio"}).out,
            folder.run({"bench", "ratio", "--help"}).out);
  const Ran wrong = folder.run({"help", "lunch"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_TRUE(has(wrong.err, "there is no command \"lunch\"")) << wrong.err;
}

TEST(Program, VersionSaysWhatItWasBuiltFrom) {
  const ScratchFolder folder;
  const Ran text = folder.run({"version"});
  EXPECT_TRUE(has(text.out, "libtorch 2.")) << text.out;
  const std::string json = folder.run({"version", "--json"}).out;
  for (const char* key :
       {"format", "version", "commit", "date", "compiler", "build_type", "libtorch", "cuda"})
    EXPECT_TRUE(has(json, fmt::format("\"{}\": ", key))) << json;
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
        Mistake{{"launch"}, 2, "found no config, expected a TOML file; name one, or take"},
        Mistake{{"launch", "nowhere.toml"}, 2, "needs none: --example quickstart"},
        Mistake{{"launch", "--example", "quikstart"}, 2, "did you mean quickstart?"},
        Mistake{{"launch", "run.toml", "--example", "tiny"}, 2, "excludes"},
        Mistake{{"completion", "tcsh"}, 2, "bash,zsh,fish"},
        Mistake{{"launch", "run.toml", "--frish"}, 2, "\"swarmline launch --help\""},
        Mistake{{"simulate", "nowhere.toml"}, 2, "nowhere.toml"},
        Mistake{{"simulate", "run.toml"}, 2, "not a scenario"},
        Mistake{{"chaos", "run.toml"}, 2, "--plan is required"},
        Mistake{{"chaos", "run.toml", "--plan", "none.toml"}, 2, "none.toml"},
        Mistake{{"chaos", "run.toml", "--plan", "run.toml"}, 2, "expected chaos_format = 1"},
        Mistake{{"chaos", "run.toml", "--plan", SWARMLINE_SOURCE_DIR "/configs/chaos/tiny.toml"},
                2,
                "the run has 6 steps"},
        Mistake{{"chaos", "run.toml", "--plan", SWARMLINE_SOURCE_DIR "/configs/chaos/tiny.toml",
                 "--set", "run.steps=20", "--peer-config", "peer.toml"},
                2,
                "expected port 0"},
        Mistake{{"plan"}, 2, "expected a run, a snapshot, --status FILE or --replay FLEET"},
        Mistake{{"plan", "a.json", "--status", "b.json"}, 2, "one of them"},
        Mistake{{"plan", "--status", "none.json"}, 2, "none.json"},
        Mistake{{"plan", "127.0.0.1:1"}, 1, "no coordinator answers at 127.0.0.1:1"},
        Mistake{{"plan", "run.toml"}, 2, "run.toml: "},
        Mistake{{"plan", "none.json"}, 2, "none.json"},
        Mistake{{"plan", "--replay", "run.toml"}, 2, "not a fleet file"},
        Mistake{{"plan", "--seeds", "2"}, 2, "--seeds requires --replay"},
        Mistake{{"fleet", "convert", "run.toml", "--out", "x", "--name", "x", "--source", "x",
                 "--licence", "x"},
                2,
                "expected DATE, TIME, COUNT"},
        Mistake{{"launch", "none.toml"}, 2, "none.toml: found no such file"},
        Mistake{{"launch", "run.toml", "--listen", "host:1"},
                2,
                "\"swarmline launch\" has no option --listen; \"swarmline launch --help\""},
        Mistake{{"launch", "run.toml", "--refrence"},
                2,
                "\"swarmline launch\" has no option --refrence, did you mean --reference?"},
        Mistake{{"peer", "--join", "127.0.0.1:1", "--memory", "16X"},
                2,
                "--memory: found \"16X\", expected an integer of at least 0, or text with K, M, G "
                "or T behind it"},
        Mistake{
            {"coordinator", "run.toml", "--listen", "nowhere"}, 2, "--listen: found \"nowhere\""},
        Mistake{
            {"coordinator", "run.toml", "--log-level", "loud"}, 2, "--log-level: found \"loud\""},
        Mistake{{"peer", "--join", "127.0.0.1:1", "--memory", "16G", "--bandwidth", "1.5G",
                 "--join-patience", "0.1"},
                1,
                "127.0.0.1:1"},
        Mistake{{"checkpoint", "lst", "--help"}, 2, "there is no command \"checkpoint lst\""},
        Mistake{{"config", "chek", "--help"},
                2,
                "there is no command \"config chek\", did you mean check?; \"swarmline config "
                "--help\""},
        Mistake{{"keys", "rotate", "run", "more"},
                2,
                "\"swarmline keys rotate\" takes no further word, found \"more\""},
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
        Mistake{{"launch", "run.toml", "--set", "net.advertise=\"here\""}, 2, "HOST:PORT"},
        Mistake{{"peer", "--join", "192.0.2.1:7400"}, 2, "join by the string"},
        Mistake{{"peer", "--join", "swarm1abc@127.0.0.1:1"}, 2, "this is no join string"},
        Mistake{{"peer", "--join", "nowhere"}, 2, "or HOST:PORT of a coordinator"},
        Mistake{{"peer", "--join", "127.0.0.1:1", "--threads", "many"}, 2, "--threads: found"},
        Mistake{
            {"peer", "--join", "127.0.0.1:1", "--name", "a\x1b[2J"}, 2, "--name: found \"a\\x1b"},
        Mistake{{"peer", "--join", "127.0.0.1:1", "--zone", "größe"}, 2, "--zone: found"},
        Mistake{{"stop", "127.0.0.1:1"}, 1, "no coordinator answers at 127.0.0.1:1"},
        Mistake{{"peer", "--join", "127.0.0.1:1", "--join-patience", "0"},
                1,
                "no coordinator answers at 127.0.0.1:1"},
        Mistake{{"status"}, 2, "there is no run under runs/ here"},
        Mistake{{"status", "127.0.0.1:1"}, 1, "no coordinator answers at 127.0.0.1:1"},
        Mistake{{"stop", "nothing"}, 2, "nothing is neither a run folder nor HOST:PORT"},
        Mistake{{"config"}, 2, "subcommand is required"},
        Mistake{{"config", "check", "run.toml", "--set", "model.heads=3"}, 2, "heads"},
        Mistake{{"bench"}, 2, "subcommand is required"},
        Mistake{{"bench", "codec", "--codecs", "h9"}, 2, "did you mean \"h8\"?"},
        Mistake{{"bench", "codec", "--codecs", "lin8", "--blocks", "63"}, 2, "a power of two"},
        Mistake{{"bench", "codec", "--dtypes", "fp64"}, 2, "expected fp32, bf16 or fp16"},
        Mistake{{"bench", "codec", "--scales", "fp8"}, 2, "expected fp32 or bf16"},
        Mistake{{"bench", "codec", "--mib", "0"}, 2, "--mib"},
        Mistake{{"bench", "codec", "--tensors", "nothing"}, 2, "no such file"},
        Mistake{{"bench", "allreduce", "--codec", "h9"}, 2, "did you mean \"h8\"?"},
        Mistake{{"bench", "allreduce", "--members", "1"}, 2, "not in range 2 to 64"},
        Mistake{{"bench", "allreduce", "--python", "/bin/false"}, 2, "has PyTorch"},
        Mistake{{"bench", "ratio", "--hidden", "700"}, 2, "expected a multiple of 64"},
        Mistake{{"bench", "ratio", "--codec", "h9"}, 2, "did you mean \"h8\"?"},
        Mistake{{"bench", "ratio", "--bandwidth", "quick"}, 2, "e.g. 100M or 1G"},
        Mistake{{"bench", "ratio", "--rtt", "-1"}, 2, "--rtt"},
        Mistake{{"bench", "ratio", "none.toml"}, 2, "none.toml: found no such file"},
        Mistake{{"checkpoint", "diff", "a", "b"}, 2, "a"}));

TEST(Program, ConfigCheckIsGolden) {
  const ScratchFolder folder;
  folder.write_small_run();
  const Ran text = folder.run({"config", "check", "run.toml"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  expect_golden("cli/config_check.txt", text.out);
  const Ran json = folder.run({"config", "check", "run.toml", "--json"});
  EXPECT_EQ(json.exit_code, 0) << json.err;
  expect_golden("cli/config_check.json", json.out);
}

TEST(Program, ConfigCheckNeedsNoData) {
  const ScratchFolder folder;
  folder.write_small_run();
  const Ran whole = folder.run({"config", "check", "run.toml"});
  const Ran text = folder.run({"config", "check", "run.toml", "--set", "data.files=[\"none/*\"]"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(
      has(text.out, "# data: not checked, since nothing on this machine matches \"none/*\""))
      << text.out;
  const std::string stages = whole.out.substr(whole.out.find("# model: "));
  EXPECT_TRUE(has(text.out, stages)) << "what stages hold is the same\n" << text.out;
  const Ran json =
      folder.run({"config", "check", "run.toml", "--json", "--set", "data.files=[\"none/*\"]"});
  EXPECT_TRUE(has(json.out, "\"data_missing\": \"none/*\"")) << json.out;
  EXPECT_TRUE(has(json.out, "\"tokens\": null")) << json.out;

  const Ran tokens = folder.run({"config", "check", "run.toml", "--set", "data.kind=\"tokens\"",
                                 "--set", "data.files=[\"none/*\"]"});
  EXPECT_EQ(tokens.exit_code, 2) << tokens.out;
  EXPECT_TRUE(has(tokens.err, "model.vocab: found 0")) << tokens.err;
  const Ran folder_named =
      folder.run({"config", "check", "run.toml", "--set", "data.files=[\".\"]"});
  EXPECT_EQ(folder_named.exit_code, 2) << "a mistake that needs no data to be seen";
  const Ran placed = folder.run({"config", "check", "run.toml", "--set", "data.from_step=7"});
  EXPECT_EQ(placed.exit_code, 2) << "what only a run says to its peers";
  EXPECT_TRUE(has(placed.err, "data.from_step, data.from_sequence: found in a config file"))
      << placed.err;
}

TEST(Program, ConfigCheckSaysWhatErrorFeedbackGivesUp) {
  const ScratchFolder folder;
  folder.write_small_run();
  const auto says = [&](const char* set) {
    return folder.run({"config", "check", "run.toml", "--set", set}).out.find("dies with it") !=
           std::string::npos;
  };
  EXPECT_TRUE(says("codec.averaging=topk"));
  EXPECT_FALSE(says("codec.averaging=int4"));
}

TEST(Program, WhatConfigCheckPrintsIsTheSameConfig) {
  const ScratchFolder folder;
  folder.write_small_run();
  folder.write("again.toml", folder.run({"config", "check", "run.toml"}).out);
  EXPECT_EQ(folder.run({"config", "check", "again.toml"}).out,
            folder.run({"config", "check", "run.toml"}).out);
}

TEST(Program, BenchCodecPrintsAndWritesItsTables) {
  const ScratchFolder folder;
  const Ran ran = folder.run({"bench", "codec", "--codecs", "none,h8,lin8", "--blocks", "64,256",
                              "--dtypes", "fp32,bf16", "--mib", "1", "--rounds", "1", "--tensors",
                              "normal", "--json", "codec.json", "--csv", "codec.csv"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  for (const char* part : {"none ", "h8 ", "lin8/64 ", "lin8/256 ", " bf16 ", "rel. L2"}) {
    EXPECT_TRUE(has(ran.out, part)) << part << "\n" << ran.out;
  }
  EXPECT_TRUE(has(folder.read("codec.json"), "\"kind\": \"codec\""));
  const std::string table = folder.read("codec.csv");
  // A head, 4 codecs x 2 dtypes, 4 codecs x 1 tensor.
  EXPECT_EQ(std::ranges::count(table, '\n'), 1 + 8 + 4) << table;
}

TEST(Program, BenchRatioPrintsAndWritesItsTables) {
  const ScratchFolder folder;
  folder.write_small_run();
  const Ran ran = folder.run({"bench", "ratio", "run.toml", "--hidden", "32,64", "--codec", "h8",
                              "--bandwidth", "100M,1G", "--rtt", "0,50", "--rounds", "1", "--json",
                              "ratio.json", "--csv", "ratio.csv", "--svg", "ratio.svg"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  for (const char* part : {"GFLOP/s", "even Mb/s", "in flight in a chain of", "100 Mb/s"})
    EXPECT_TRUE(has(ran.out, part)) << part << "\n" << ran.out;
  EXPECT_TRUE(has(folder.read("ratio.json"), "\"kind\": \"ratio\""));
  EXPECT_TRUE(has(folder.read("ratio.svg"), "</svg>"));
  const std::string table = folder.read("ratio.csv");
  EXPECT_EQ(std::ranges::count(table, '\n'), 1 + 2 * 2 * 2) << table;
}

TEST(Program, NoCommandThatPeopleUseHasTheTapOfAChaosRun) {
  const ScratchFolder folder;
  const Ran help = folder.run({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_FALSE(has(help.out, "tapped")) << help.out;
  for (const char* command : {"coordinator", "peer", "launch"}) {
    const Ran ran = folder.run({command, "--parent", "127.0.0.1:1"});
    EXPECT_EQ(ran.exit_code, 2) << command;
  }
  const Ran alone = folder.run({"tapped", "--parent", "127.0.0.1:1"});
  EXPECT_EQ(alone.exit_code, 2) << alone.err;
}

TEST(Program, PlansASnapshotAndReplaysAFleet) {
  const ScratchFolder folder;
  const Ran plan = folder.run({"plan", SWARMLINE_SOURCE_DIR "/tests/golden/plan/snapshot.json"});
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_TRUE(has(plan.out, "stage 2 has nobody")) << plan.out;
  folder.write("trace.csv", "0,add,a\n0,add,b\n0,add,c\n7200000,remove,c\n");
  const Ran made = folder.run({"fleet", "convert", "trace.csv", "--out", "small.fleet", "--name",
                               "small", "--source", "this test", "--licence", "MIT"});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_TRUE(has(made.out, "2 events in 2.0 h, up to 3 machines")) << made.out;
  const Ran replay =
      folder.run({"plan", "--replay", "small.fleet", "--stages", "2", "--seeds", "1", "--json"});
  EXPECT_EQ(replay.exit_code, 0) << replay.err;
  EXPECT_TRUE(has(replay.out, "\"rule\": \"swarmline\"")) << replay.out;
}

TEST(Program, FleetPlanPredictsTheExample) {
  const ScratchFolder folder;
  const std::string run = SWARMLINE_SOURCE_DIR "/configs/gpt2_small.toml";
  const std::string prices = SWARMLINE_SOURCE_DIR "/configs/fleets/t4_and_a100.toml";
  const Ran ran = folder.run({"fleet", "plan", run, "--prices", prices});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "What to change first")) << ran.out;
  const Ran json = folder.run({"fleet", "plan", run, "--prices", prices, "--json"});
  EXPECT_TRUE(has(json.out, "\"kind\": \"prediction\"")) << json.err;
  folder.write("bad.toml", "fleet_format = 1\n[devices.a]\ncounts = 1\n");
  const Ran bad = folder.run({"fleet", "plan", run, "--prices", "bad.toml"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_EQ(bad.err,
            "swarmline: bad.toml:3: devices.a.counts: there is no such key; did you mean count?\n");
  EXPECT_EQ(folder.run({"fleet", "plan", run, "--prices", "missing.toml"}).exit_code, 2);
}

TEST(Program, FleetPlanFindsTheCheapestSettingOfATrace) {
  const ScratchFolder folder;
  const std::string run = SWARMLINE_SOURCE_DIR "/configs/llama_like.toml";
  const std::string prices = SWARMLINE_SOURCE_DIR "/configs/fleets/p3.toml";
  const std::string trace = SWARMLINE_SOURCE_DIR "/configs/fleets/aws-p3.fleet";
  const std::vector<std::string> plan{"fleet", "plan",     run, "--prices",   prices, "--trace",
                                      trace,   "--stages", "4", "--machines", "12,32"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = plan;
    all.insert(all.end(), more.begin(), more.end());
    return folder.run(all);
  };
  const Ran ran = with({"--svg", "plan.svg"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out.rfind("cheapest: ", 0), 0U) << ran.out;
  for (const char* word : {"than checkpoint-restart at 180 s", "on demand only",
                           "redundant computing", "whole-model replicas", "What to change first"})
    EXPECT_TRUE(has(ran.out, word)) << word << " in " << ran.out;
  EXPECT_TRUE(has(folder.read("plan.svg"), "<svg")) << ran.err;
  EXPECT_TRUE(has(with({"--json"}).out, "\"kind\": \"plan\""));

  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& words) {
    const Ran bad = folder.run(arguments);
    EXPECT_EQ(bad.exit_code, 2) << words;
    EXPECT_TRUE(has(bad.err, words)) << bad.err;
  };
  const std::string two = SWARMLINE_SOURCE_DIR "/configs/fleets/t4_and_a100.toml";
  refused({"fleet", "plan", run, "--prices", two, "--trace", trace}, "say by --machine which");
  refused({"fleet", "plan", run, "--prices", two, "--trace", trace, "--machine", "t5"},
          "expected one of t4, a100");
  refused({"fleet", "plan", run, "--prices", two, "--trace", trace, "--machine", "t4"},
          "found no on_demand_price");
  refused({"fleet", "plan", run, "--prices", prices, "--trace", trace, "--stages", "23"},
          "23 stages for 22 layers");
  refused({"fleet", "plan", run, "--prices", prices, "--trace", trace, "--codecs", "h9"},
          "did you mean \"h8\"?");
  folder.write("short.fleet", "# swarmline fleet: 1\n# kind: counts\n0 8\n30 9\n");
  refused({"fleet", "plan", run, "--prices", prices, "--trace", "short.fleet"},
          "the trace covers 30 s; expected at least 600 s");
  refused({"fleet", "plan", run, "--prices", prices, "--trace", prices}, "not a fleet file");
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
        EXPECT_TRUE(has(second.err, "--listen HOST:PORT")) << second.err;
        const Ran stopped = folder.run({"stop", "runs/small"});
        EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
        (void)pid;
      });
  EXPECT_EQ(first.exit_code, 0) << first.err;
}

// Whoever reaches the port may look; only who can read the run's folder may end it.
TEST(Program, ARunIsStoppedByItsFolderAlone) {
  const ScratchFolder folder;
  folder.write_small_run();
  const Ran ran = folder.run_and(
      {"coordinator", "run.toml"}, [&] { return folder.has("runs/small/coordinator.address"); },
      [&](pid_t) {
        std::string address = folder.read("runs/small/coordinator.address");
        address.pop_back();
        EXPECT_EQ(folder.run({"status", address}).exit_code, 0);
        for (const char* how : {"", "--now"}) {
          std::vector<std::string> stop{"stop", address};
          if (*how != '\0') stop.emplace_back(how);
          const Ran refused = folder.run(stop);
          EXPECT_EQ(refused.exit_code, 3) << refused.out;
          EXPECT_TRUE(has(refused.err, "only who can read the run's folder may steer the run"))
              << refused.err;
        }
        const std::string key = folder.path() + "/runs/small/admin.key";
        EXPECT_EQ(::chmod(key.c_str(), 0644), 0);
        const Ran shown = folder.run({"stop", "runs/small"});
        EXPECT_EQ(shown.exit_code, 2);
        EXPECT_TRUE(has(shown.err, "has mode 0644, so that others may use what is secret in it"))
            << shown.err;
        EXPECT_EQ(::chmod(key.c_str(), 0600), 0);
        const Ran stopped = folder.run({"stop", "runs/small"});
        EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
      });
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
}

}  // namespace
}  // namespace swarmline
