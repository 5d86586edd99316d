// Whole runs with real processes.
#include <algorithm>
#include <chrono>
#include <signal.h>
#include <sstream>

#include <gtest/gtest.h>

#include "engine/checkpoint/checkpoint_diff.h"
#include "engine/store/files.h"
#include "tests/cli/program.h"
#include "tests/runtime/comes_true.h"

namespace swarmline {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::size_t lines_of_kind(const std::string& log, const std::string& kind) {
  std::istringstream lines(log);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line);)
    count += has(line, "\"kind\":\"" + kind + "\"");
  return count;
}

// Steps, seconds and their quotient are of one span; what the run lacks is said in plain output.
TEST(Launch, NumbersGoWhereTheConfigSays) {
  const ScratchFolder folder;
  folder.write_small_run();
  const Ran ran =
      folder.run({"launch", "run.toml", "--name", "it", "--set", "log.tensorboard=true", "--set",
                  "log.command=\"cat > lines.txt\"", "--set", "checkpoint.every_minutes=0"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  EXPECT_TRUE(has(ran.out, "unprotected: ")) << ran.out;
  const std::string log = folder.read("runs/it/log.jsonl");
  EXPECT_EQ(folder.read("lines.txt"), log) << "the command had time to read all";
  EXPECT_EQ(lines_of_kind(log, "step"), 6U);
  EXPECT_TRUE(has(log, "\"step\":1,\"version\":1,")) << "steps count from 1 on";
  EXPECT_TRUE(has(log, "\"kind\":\"peer_joined\"") && has(log, "\"name\":\"peer-a\"")) << log;
  EXPECT_TRUE(has(log, "peer-a (peer "));
  EXPECT_TRUE(folder.has("runs/it/logs/peer-a.log"));
  const auto events = list_folder(folder.path() + "/runs/it/tensorboard");
  ASSERT_TRUE(events);
  ASSERT_EQ(events->size(), 1U);
  EXPECT_TRUE(events->front().starts_with("events.out.tfevents.")) << events->front();
}

// Over a stop in the middle: what was before is in all sums.
TEST(Launch, TotalsOfAResumedRunAreThoseOfTheRun) {
  const ScratchFolder folder;
  folder.write_small_run();
  const Ran first = folder.run({"launch", "run.toml", "--set", "run.steps=3"});
  ASSERT_EQ(first.exit_code, 0) << first.out << first.err;
  const Ran second = folder.run({"launch", "run.toml"});
  ASSERT_EQ(second.exit_code, 0) << second.out << second.err;
  const auto bytes = [&](const Ran& ran) {  // "...; 12.3 KiB in all"
    const std::size_t end = ran.out.find(" KiB in all");
    const std::size_t begin = ran.out.rfind(' ', end - 1);
    return end == std::string::npos ? 0.0 : std::stod(ran.out.substr(begin, end - begin));
  };
  EXPECT_NEAR(bytes(second), 2 * bytes(first), 0.25 * bytes(first)) << second.out;
  EXPECT_TRUE(has(second.out, "6 of 6 steps, 768 tokens in ")) << second.out;
  EXPECT_FALSE(has(second.out, "since step")) << second.out;
}

TEST(Launch, SwarmEqualsReference) {
  const ScratchFolder folder;
  folder.write_small_run();
  const Ran swarm = folder.run({"launch", "run.toml"});
  ASSERT_EQ(swarm.exit_code, 0) << swarm.out << swarm.err;
  EXPECT_TRUE(has(swarm.out, "finished 6 steps")) << swarm.out;
  EXPECT_TRUE(has(swarm.out, "bigram entropy")) << swarm.out;
  EXPECT_TRUE(has(swarm.out, "runs/small/checkpoints/step-6")) << swarm.out;
  EXPECT_TRUE(has(swarm.out, "boundary 0->1")) << swarm.out;
  EXPECT_EQ(swarm.out.find('\x1b'), std::string::npos) << "escape sequences off a terminal";

  const Ran reference = folder.run({"launch", "run.toml", "--reference"});
  ASSERT_EQ(reference.exit_code, 0) << reference.err;
  EXPECT_EQ(lines_of_kind(folder.read("runs/small/log.jsonl"), "step"), 6U);
  EXPECT_EQ(lines_of_kind(folder.read("runs/small-reference/log.jsonl"), "step"), 6U);

  const auto diff =
      diff_checkpoints(folder.path() + "/runs/small", folder.path() + "/runs/small-reference");
  ASSERT_TRUE(diff) << diff.error().what;
  EXPECT_TRUE(diff->same_tensors());
  for (const TensorDiff& tensor : diff->tensors) EXPECT_LT(tensor.max_abs, 1e-9) << tensor.name;

  const Ran shown = folder.run({"checkpoint", "diff", "runs/small", "runs/small-reference"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_TRUE(has(shown.out, "largest absolute difference")) << shown.out;
  const Ran json =
      folder.run({"checkpoint", "diff", "runs/small", "runs/small-reference", "--json"});
  EXPECT_TRUE(has(json.out, "\"format\"")) << json.out;

  EXPECT_TRUE(has(folder.run({"status", "runs/small"}).out, "small: done"));
  EXPECT_TRUE(has(folder.run({"status", "runs/small", "--json"}).out, "\"state\":\"done\""));
  const Ran newest = folder.run({"status"});
  EXPECT_TRUE(has(newest.out, "small-reference: done")) << newest.out << newest.err;
  EXPECT_TRUE(
      has(folder.run({"stop", "runs/small"}).err, "no coordinator of runs/small is running"));

  const Ran again = folder.run({"launch", "run.toml"});
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_TRUE(has(again.out, "runs/small has finished its 6 steps")) << again.out << again.err;
  const Ran other = folder.run({"launch", "run.toml", "--set", "optimizer.beta1=0.5"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_TRUE(has(other.err, "optimizer.beta1: found 0.5, but the run began with 0.9"))
      << other.err;
  const Ran fresh = folder.run({"launch", "run.toml", "--fresh", "--set", "run.steps=1"});
  EXPECT_EQ(fresh.exit_code, 0) << fresh.err;
  EXPECT_TRUE(folder.has("runs/small.1/checkpoints/step-6/manifest.json"));
}

TEST(Launch, ReferenceTakesASummationOrderAndAPlace) {
  const ScratchFolder folder;
  folder.write_small_run();
  ASSERT_EQ(folder.run({"launch", "run.toml", "--reference"}).exit_code, 0);
  const Ran permuted = folder.run({"launch", "run.toml", "--name", "permuted", "--reference",
                                   "--permute-sums", "5", "--checkpoint-out", "elsewhere"});
  ASSERT_EQ(permuted.exit_code, 0) << permuted.err;
  const auto diff = diff_checkpoints(folder.path() + "/runs/small-reference",
                                     folder.path() + "/elsewhere/step-6");
  ASSERT_TRUE(diff) << diff.error().what;
  EXPECT_FALSE(diff->equal_bits());
  for (const TensorDiff& tensor : diff->tensors) EXPECT_LT(tensor.max_abs, 1e-9) << tensor.name;
}

// A run that lasts until somebody ends it.
std::vector<std::string> endless() {
  return {"launch", "run.toml", "--set", "run.steps=1000000"};
}

bool training(const ScratchFolder& folder) {
  return lines_of_kind(folder.read("runs/small/log.jsonl"), "step") > 0;
}

TEST(Launch, ALivingRunIsPlannedByItsFolderItsAddressAndItsStatus) {
  const ScratchFolder folder;
  folder.write_small_run();
  const Ran ran = folder.run_and(
      endless(), [&] { return training(folder); },
      [&](pid_t pid) {
        std::string address = folder.read("runs/small/coordinator.address");
        address.pop_back();
        folder.write("status.json", folder.run({"status", "runs/small", "--json"}).out);
        for (const std::vector<std::string>& plan : {std::vector<std::string>{"plan", "runs/small"},
                                                     {"plan", address},
                                                     {"plan", "status.json"},
                                                     {"plan", "--status", "status.json"}}) {
          const Ran shown = folder.run(plan);
          EXPECT_EQ(shown.exit_code, 0) << shown.err;
          EXPECT_TRUE(has(shown.out, "microbatches per second of the slowest stage")) << shown.out;
          EXPECT_EQ(shown.out.find("nan"), std::string::npos) << shown.out;
        }
        ::kill(pid, SIGINT);
      });
  EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  const Ran over = folder.run({"plan", "runs/small"});
  EXPECT_EQ(over.exit_code, 2) << over.out;
  EXPECT_TRUE(has(over.err, "the run small is over (")) << over.err;
}

TEST(Launch, InterruptDrainsAndWritesACheckpoint) {
  const ScratchFolder folder;
  folder.write_small_run();
  const Ran ran = folder.run_and(
      endless(), [&] { return training(folder); }, [](pid_t pid) { ::kill(pid, SIGINT); });
  EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  EXPECT_TRUE(has(ran.out, "drained after step")) << ran.out;
  EXPECT_TRUE(has(ran.out, "runs/small/checkpoints/step-")) << ran.out;
}

TEST(Launch, SecondInterruptLeavesAtOnce) {
  const ScratchFolder folder;
  folder.write_small_run();
  const Ran ran = folder.run_and(
      endless(), [&] { return training(folder); },
      [&](pid_t pid) {
        EXPECT_EQ(folder.processes("peer --join").size(), 4U);
        const auto coordinator = folder.processes("coordinator runs/small");
        ASSERT_EQ(coordinator.size(), 1U);
        ::kill(coordinator[0], SIGSTOP);  // it cannot drain before the second signal
        ::kill(pid, SIGINT);
        EXPECT_TRUE(comes_true([&] {
          return has(folder.read("stdout.txt") + folder.read("stderr.txt"), "Finishing the step");
        }));
        ::kill(pid, SIGINT);
      });
  EXPECT_EQ(ran.exit_code, 130) << ran.out << ran.err;
  EXPECT_TRUE(folder.processes("").empty());
}

TEST(Launch, LostPeersEndTheRunWithASentence) {
  const ScratchFolder folder;
  folder.write_small_run();
  std::chrono::steady_clock::time_point killed;
  std::vector<std::string> arguments = endless();
  arguments.insert(arguments.end(), {"--set", "net.peers_wait_seconds=0", "--restarts", "0"});
  const Ran ran = folder.run_and(
      arguments, [&] { return training(folder); },
      [&](pid_t) {
        const auto peers = folder.processes("peer --join");
        ASSERT_EQ(peers.size(), 4U);
        killed = std::chrono::steady_clock::now();
        for (const pid_t peer : peers) ::kill(peer, SIGKILL);
      });
  EXPECT_EQ(ran.exit_code, 1) << ran.out << ran.err;
  EXPECT_TRUE(has(ran.err, "was lost")) << ran.err;
  EXPECT_TRUE(has(ran.err, "ended with code 137; the end of runs/small/logs/peer-")) << ran.err;
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(30));
}

TEST(Launch, NothingOutlivesAKilledSupervisor) {
  const ScratchFolder folder;
  folder.write_small_run();
  const Ran ran = folder.run_and(
      endless(), [&] { return training(folder); },
      [&](pid_t pid) {
        EXPECT_EQ(folder.processes("").size(), 6U);
        ::kill(pid, SIGKILL);
      });
  EXPECT_EQ(ran.exit_code, 128 + SIGKILL);
  EXPECT_TRUE(comes_true([&] { return folder.processes("").empty(); }));
}

TEST(Launch, EachPeerGetsADeviceThatWasNamed) {
  const ScratchFolder folder;
  folder.write_small_run();
  const Ran few = folder.run({"launch", "run.toml", "--devices", "cuda:0,cuda:1"});
  EXPECT_EQ(few.exit_code, 2);
  EXPECT_TRUE(has(few.err, "--devices: found 2 devices, but the run has 4 peers")) << few.err;
  const Ran unknown = folder.run({"launch", "run.toml", "--devices", "cpu,cpu,gpu,cpu"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_TRUE(has(unknown.err, "found \"gpu\", expected \"cpu\", \"cuda\"")) << unknown.err;
  std::vector<std::string> arguments = endless();
  arguments.insert(arguments.end(), {"--devices", "cpu,cpu,cpu,cpu"});
  const Ran ran = folder.run_and(
      arguments, [&] { return training(folder); },
      [&](pid_t pid) {
        EXPECT_EQ(folder.processes("--device cpu").size(), 4U);
        ::kill(pid, SIGINT);
      });
  EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
}

TEST(Launch, EmulatedPeerIsTheOneThatWasNamed) {
  const ScratchFolder folder;
  folder.write_small_run();
  const Ran ran = folder.run({"launch", "run.toml", "--emulate", "1:0=30/30", "--emulate",
                              "1:1=30/30", "--set", "run.steps=12"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  std::istringstream status(folder.run({"status", "runs/small"}).out);
  std::vector<double> busy[2];
  std::size_t stage = 0;
  for (std::string line; std::getline(status, line);) {
    if (has(line, "  stage ")) stage = has(line, "stage 1") ? 1 : 0;
    if (const auto at = line.find("busy"); at != std::string::npos) {
      busy[stage].push_back(std::stod(line.substr(at + 5)));
    }
  }
  ASSERT_EQ(busy[0].size(), 2U);
  ASSERT_EQ(busy[1].size(), 2U);
  EXPECT_GT(std::ranges::min(busy[1]), 2 * std::ranges::max(busy[0]));
}

}  // namespace
}  // namespace swarmline
