// The whole swarm is killed at once, as by a power cut, again and again; and a run goes on in other
// cuts. Either way it ends as if nothing had happened.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>
#include <thread>
#include <tuple>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/checkpoint/checkpoint_diff.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

constexpr int kKills = 20;
constexpr int kKillsPerWriting = 4;        // one of so many comes while a checkpoint is written
constexpr double kRoundingOfFp32 = 1e-5;   // of a tensor's peak
constexpr std::uint64_t kLatestMs = 2000;  // after it trains, or after its start

// The newest checkpoint's files and their SHA-256.
std::map<std::string, std::string> newest_hashes(const SwarmFolder& swarm) {
  const auto newest = latest_checkpoint(swarm.run().checkpoints());
  EXPECT_TRUE(newest && *newest);
  if (!newest || !*newest) return {};
  const auto manifest = read_checkpoint((*newest)->path, Verify::kContents);
  EXPECT_TRUE(manifest) << manifest.error().what;
  std::map<std::string, std::string> hashes;
  if (manifest)
    for (const SavedStage& stage : manifest->stages)
      for (const PartFile& part : stage.parts) hashes[part.file] = part.sha256;
  return hashes;
}

// Checkpoints that are not whole: each a folder step-N.TRY.partial, which no other try is called.
std::set<std::string> partial_checkpoints(const SwarmFolder& swarm) {
  std::set<std::string> found;
  std::error_code none_yet;
  for (const auto& entry : std::filesystem::directory_iterator(swarm.run().checkpoints(), none_yet))
    if (entry.path().extension() == ".partial") found.insert(entry.path());
  return found;
}

// Whether another one than `before` is there.
bool writes_another(const SwarmFolder& swarm, const std::set<std::string>& before) {
  return !std::ranges::includes(before, partial_checkpoints(swarm));
}

// Stops the coordinator in the middle of one.
bool stop_while_writing(const SwarmFolder& swarm, pid_t coordinator,
                        const std::set<std::string>& before) {
  return comes_true([&] {
    if (!writes_another(swarm, before)) return false;
    ::kill(coordinator, SIGSTOP);
    if (writes_another(swarm, before)) return true;
    ::kill(coordinator, SIGCONT);
    return false;
  });
}

void kill_whole(Program& launch) {
  launch.signal(SIGSTOP);  // it starts nobody meanwhile
  const std::vector<pid_t> processes = descendants(launch.pid());
  launch.signal(SIGKILL);
  for (const pid_t process : processes) ::kill(process, SIGKILL);
  launch.wait();
  expect_nothing_left();
}

// With one peer a stage no sum depends on who came first: every bit is the same.
TEST(SwarmKilledWhole, TwentyTimesAndItEndsWithTheBitsOfTheRunThatWasNot) {
  adopt_orphans();
  const std::vector<std::string> config = {"run.steps=1000000", "optimizer.lr_decay_steps=5000",
                                           "checkpoint.every_steps=2", "checkpoint.keep=2",
                                           "net.peers_wait_seconds=20"};
  const SwarmFolder swarm(config);
  Rng rng(20);
  std::uint64_t lost = 0, step = 0;
  int while_writing = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    const bool at_writing = kill % kKillsPerWriting == 0;
    const std::set<std::string> left = partial_checkpoints(swarm);
    Program launch = swarm.start("launch", swarm.emulating(1, 2));
    if (rng.below(4) > 0 || at_writing)
      ASSERT_TRUE(swarm.wait_for_step(step + 2)) << launch.output();
    const std::chrono::milliseconds moment(rng.below(kLatestMs));
    std::this_thread::sleep_for(moment);
    const auto status = swarm.status();
    if (at_writing) {
      const pid_t coordinator = process_with(launch.pid(), "coordinator");
      ASSERT_GT(coordinator, 0);
      ASSERT_TRUE(stop_while_writing(swarm, coordinator, left)) << launch.output();
    }
    ASSERT_TRUE(launch.running()) << launch.output();
    kill_whole(launch);
    while_writing += writes_another(swarm, left) ? 1 : 0;
    const auto newest = latest_checkpoint(swarm.run().checkpoints());
    ASSERT_TRUE(newest) << newest.error().what;
    const std::uint64_t kept = *newest ? (*newest)->step : 0;
    ASSERT_GE(kept, step) << "what was whole before is still there";
    step = kept;
    if (status && status->step > kept) lost += status->step - kept;
  }
  EXPECT_GT(step, 0U);
  EXPECT_GE(while_writing, kKills / kKillsPerWriting);
  RecordProperty("killed_while_writing", while_writing);
  RecordProperty("steps_computed_again", static_cast<int>(lost));
  const std::uint64_t end = step + 3;
  const Ended ended = swarm.launch({"--set", "run.steps=" + std::to_string(end)});
  ASSERT_EQ(ended.code, 0) << ended.output << swarm.logs();

  std::vector<std::string> undisturbed = config;
  undisturbed.front() = "run.steps=" + std::to_string(end);
  const SwarmFolder other(undisturbed);
  const Ended whole = other.launch();
  ASSERT_EQ(whole.code, 0) << whole.output;
  EXPECT_EQ(newest_hashes(swarm), newest_hashes(other));
  expect_nothing_left();
}

struct Resumed {
  const char* optimizer;
  const char* state;
  int delay;
};

class SwarmResumed : public testing::TestWithParam<Resumed> {};

TEST_P(SwarmResumed, InOtherCutsItEndsAsItsReference) {
  const Resumed& how = GetParam();
  const std::string cut = "pipeline.stages=";
  const bool fp32 = std::string(how.state) == "8bit";  // which go with nothing else
  const std::string dtype = fp32 ? "fp32" : "fp64";
  std::vector<std::string> config = {"model.dtype=" + dtype,
                                     "model.layers=4",
                                     "run.steps=12",
                                     "optimizer.lr_decay_steps=12",
                                     "checkpoint.every_steps=3",
                                     std::string("optimizer.kind=") + how.optimizer,
                                     std::string("optimizer.state=") + how.state,
                                     "pipeline.delay=" + std::to_string(how.delay)};
  // The reference's order of sums, and no norm that rounds otherwise in other cuts: either may make
  // a state of 8 bits the next of its 256 values.
  if (fp32) config.insert(config.end(), {"pipeline.in_flight=1", "optimizer.clip=0"});
  const SwarmFolder swarm(config);
  for (const auto& [stages, steps] : {std::pair{"1", "4"}, {"4", "8"}, {"2", "12"}}) {
    const Ended ended = swarm.launch({"--set", cut + stages, "--set", "pipeline.peers=1", "--set",
                                      std::string("run.steps=") + steps});
    ASSERT_EQ(ended.code, 0) << stages << " stages: " << ended.output;
  }
  expect_reference(swarm, fp32 ? kRoundingOfFp32 : kReferenceDifferenceMax);
}

INSTANTIATE_TEST_SUITE_P(Matrix, SwarmResumed,
                         testing::Values(Resumed{"adamw", "fp32", 0}, Resumed{"adamw", "fp32", 1},
                                         Resumed{"adamw", "8bit", 0}, Resumed{"adamw", "8bit", 1},
                                         Resumed{"lamb", "fp32", 0}, Resumed{"lamb", "fp32", 1},
                                         Resumed{"lamb", "8bit", 0}, Resumed{"lamb", "8bit", 1},
                                         Resumed{"muon", "fp32", 0}, Resumed{"muon", "fp32", 1},
                                         Resumed{"muon", "8bit", 0}, Resumed{"muon", "8bit", 1}),
                         [](const testing::TestParamInfo<Resumed>& info) {
                           return std::string(info.param.optimizer) + "_" + info.param.state +
                                  "_delay" + std::to_string(info.param.delay);
                         });

}  // namespace
}  // namespace swarmline
