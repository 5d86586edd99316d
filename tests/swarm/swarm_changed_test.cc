// Runs that are started again with other settings go on as another segment, and end with the
// parameters of the single process that changes at the same step.
#include <csignal>

#include <gtest/gtest.h>

#include "engine/store/files.h"
#include "tests/net/own_port.h"
#include "tests/store/etcd_process.h"
#include "tests/store/temp_folder.h"
#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

using Flags = std::vector<std::string>;

Flags sets(const std::vector<std::string>& changes, Flags more = {}) {
  for (const std::string& change : changes) more.insert(more.end(), {"--set", change});
  return more;
}

std::vector<std::string> exact(std::vector<std::string> more) {
  more.insert(more.begin(), {"model.dtype=fp64", "model.bias=false"});
  return more;
}

Program peer_of(const SwarmFolder& swarm, const std::string& join, const std::string& name) {
  return Program(swarm.temp(), name,
                 {"peer", "--data-root", "/", "--join", join, "--name", name,
                  "--emulate-forward-ms", "2", "--emulate-backward-ms", "4"});
}

std::string detail_of_segment(const SwarmFolder& swarm, std::size_t which) {
  const std::vector<JsonValue> lines = swarm.log("segment");
  return which < lines.size() ? lines[which]["detail"].string : "there is no such segment";
}

class SwarmChanged : public testing::Test {
 protected:
  SwarmChanged() { adopt_orphans(); }
  ~SwarmChanged() override { expect_nothing_left(); }
};

TEST_F(SwarmChanged, LearningRateBatchAndCodec) {
  // No tied matrix: nobody averages, and the codec of averagings rounds nothing.
  const SwarmFolder swarm(exact({"run.steps=24", "model.tied_embeddings=false"}));
  Program first = swarm.start("launch", swarm.emulating(5, 10));
  ASSERT_TRUE(swarm.wait_for_step(4));
  first.signal(SIGINT);
  ASSERT_EQ(first.wait(), 0) << first.output() << swarm.logs();
  const auto stopped = swarm.status();
  ASSERT_TRUE(stopped);
  ASSERT_LT(stopped->step, 24U);
  EXPECT_EQ(stopped->segment, 1U);
  EXPECT_EQ(stopped->segment_sentence, "");

  const Flags changes = sets({"optimizer.lr=1e-3", "optimizer.clip=0.25", "batch.batch=12",
                              "batch.microbatch=3", "codec.averaging=lin8"});
  const Ended second = swarm.launch(changes);
  ASSERT_EQ(second.code, 0) << second.output << swarm.logs();
  const std::string begins = "segment 2 from step " + std::to_string(stopped->step + 1) +
                             ": batch.batch 8 -> 12, batch.microbatch 2 -> 3, optimizer.lr 0.003 "
                             "-> 0.001, optimizer.clip 1.0 -> 0.25, codec.averaging \"none\" -> "
                             "\"lin8\"";
  EXPECT_NE(second.output.find(begins), std::string::npos) << second.output;
  EXPECT_EQ(detail_of_segment(swarm, 0), begins);
  EXPECT_EQ(swarm.log("segment").size(), 1U);
  const auto ended = swarm.status();
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->segment, 2U);
  EXPECT_EQ(ended->segment_sentence, begins);
  EXPECT_EQ(ended->tokens, 32 * (8 * stopped->step + 12 * (24 - stopped->step)));
  const std::vector<JsonValue> steps = swarm.log("step");
  ASSERT_EQ(steps.size(), 24U) << "the steps are counted on";
  EXPECT_EQ(steps.front()["tokens"].count(), 8U * 32);
  EXPECT_EQ(steps.back()["tokens"].count(), 12U * 32);
  expect_reference(swarm, kReferenceDifferenceMax, changes);
}

TEST_F(SwarmChanged, DelayBeginsAndEndsAndDataChanges) {
  const SwarmFolder swarm(exact({"optimizer.schedule=constant", "pipeline.peers=[2, 1]"}));
  ASSERT_EQ(swarm.launch(sets({"run.steps=3"})).code, 0) << swarm.logs();
  ASSERT_EQ(swarm.launch(sets({"run.steps=7", "pipeline.delay=1"})).code, 0) << swarm.logs();
  std::string text;
  for (int line = 0; line < 2000; ++line) text += "line " + std::to_string(line * line) + "\n";
  const std::string other = "data.files=\"" + swarm.temp().write("other", text) + "\"";
  ASSERT_EQ(swarm.launch(sets({"run.steps=10", "pipeline.delay=1", other})).code, 0)
      << swarm.logs();
  ASSERT_EQ(swarm.launch(sets({"run.steps=13", other})).code, 0) << swarm.logs();
  EXPECT_EQ(detail_of_segment(swarm, 0), "segment 2 from step 4: pipeline.delay 0 -> 1");
  EXPECT_NE(detail_of_segment(swarm, 1).find("segment 3 from step 8: data.files"),
            std::string::npos);
  EXPECT_EQ(detail_of_segment(swarm, 2), "segment 4 from step 11: pipeline.delay 1 -> 0");
  EXPECT_EQ(swarm.log("segment").size(), 3U) << "more steps alone change nothing here";
  expect_reference(swarm, kReferenceDifferenceMax, sets({"run.steps=13", other}));
}

TEST_F(SwarmChanged, AnotherCodecAndBatchAreUsedAndAnotherModelIsRefused) {
  const SwarmFolder swarm({"codec.forward=auto", "optimizer.schedule=constant"});
  ASSERT_EQ(swarm.launch(sets({"run.steps=3"})).code, 0) << swarm.logs();
  const Ended refused = swarm.launch(sets({"run.steps=6", "model.layers=2"}));
  EXPECT_EQ(refused.code, 2) << refused.output;
  EXPECT_NE(refused.output.find("model.layers: found 2, but the run began with 4"),
            std::string::npos)
      << refused.output;
  const Ended second = swarm.launch(sets({"run.steps=6", "codec.forward=bf16", "batch.batch=4"}));
  ASSERT_EQ(second.code, 0) << second.output << swarm.logs();
  const auto status = swarm.status();
  ASSERT_TRUE(status && status->boundaries.size() == 1);
  EXPECT_EQ(status->boundaries[0].forward_codec, "bf16");
  const Ended alone = swarm.launch(sets({"run.steps=8", "codec.forward=bf16", "batch.batch=4"}));
  ASSERT_EQ(alone.code, 0) << alone.output;
  EXPECT_EQ(swarm.log("segment").size(), 1U);
  const std::string model = swarm.temp().at("hf");
  const Ended exported =
      run_program(swarm.temp(), "export", {"export", swarm.run().path(), "--out", model});
  ASSERT_EQ(exported.code, 0) << exported.output;
  const std::uint64_t tokens = 32 * (3 * 8 + 5 * 4);
  EXPECT_NE(slurp(model + "/README.md").find("8 steps (" + std::to_string(tokens) + " tokens"),
            std::string::npos)
      << slurp(model + "/README.md");
}

// What was changed is in no file of the run folder. The reference leaves no journal at all, and its
// model says what it was trained on all the same.
TEST_F(SwarmChanged, TheReferenceFollowsARunWhoseJournalIsInEtcd) {
  if (const std::string why = EtcdProcess::missing(); !why.empty()) GTEST_SKIP() << why;
  const EtcdProcess etcd;
  const SwarmFolder swarm(exact({"optimizer.schedule=constant", "run.etcd_lease_seconds=2",
                                 "run.etcd=[\"" + etcd.endpoint() + "\"]"}));
  ASSERT_EQ(swarm.launch(sets({"run.steps=3"})).code, 0) << swarm.logs();
  const Ended refused = swarm.launch(sets({"run.steps=7", "model.layers=2"}));
  EXPECT_EQ(refused.code, 2) << refused.output;
  const Flags changes = sets({"run.steps=7", "batch.batch=4", "optimizer.lr=1e-3"});
  ASSERT_EQ(swarm.launch(changes).code, 0) << swarm.logs();
  EXPECT_EQ(swarm.log("segment").size(), 1U);
  EXPECT_FALSE(file_exists(swarm.run().journal()));
  expect_reference(swarm, kReferenceDifferenceMax, changes);
  const std::string tokens = std::to_string(32 * (3 * 8 + 4 * 4));
  for (const std::string run : {"", "-reference"}) {
    const std::string model = swarm.temp().at("hf" + run);
    const Ended exported =
        run_program(swarm.temp(), "export", {"export", swarm.run().path() + run, "--out", model});
    ASSERT_EQ(exported.code, 0) << exported.output;
    EXPECT_NE(slurp(model + "/README.md").find("7 steps (" + tokens + " tokens"), std::string::npos)
        << slurp(model + "/README.md");
  }
}

// Their open steps are of other settings: they go back to the newest checkpoint as newcomers.
TEST_F(SwarmChanged, LivingPeersOfAKilledCoordinatorGoOnWithOtherSettings) {
  const SwarmFolder swarm(exact({"run.steps=40", "checkpoint.every_steps=4"}));
  std::optional<Program> coordinator(swarm.start("coordinator"));
  ASSERT_TRUE(coordinator->wait_for_output("swarmline peer --join"));
  const std::string join = to_string(*swarm.run().read_address());
  Program a = peer_of(swarm, join, "a"), b = peer_of(swarm, join, "b");
  ASSERT_TRUE(swarm.wait_for_step(6)) << coordinator->output();
  coordinator->signal(SIGKILL);
  EXPECT_EQ(coordinator->wait(), 128 + SIGKILL);
  const Flags changes = sets({"optimizer.lr=1e-3", "batch.batch=4"});
  coordinator.emplace(swarm.start("coordinator", changes));
  EXPECT_EQ(coordinator->wait(), 0) << coordinator->output();
  EXPECT_EQ(a.wait(), 0) << a.output();
  EXPECT_EQ(b.wait(), 0) << b.output();
  EXPECT_EQ(swarm.log("segment").size(), 1U);
  expect_reference(swarm, kReferenceDifferenceMax, changes);
}

// It was started with the settings of before, and with these it would change the run back.
TEST_F(SwarmChanged, AStandbyGoesOnWithTheSettingsOfTheRun) {
  const std::string address = free_address();
  const SwarmFolder swarm(
      exact({"run.steps=60", "checkpoint.every_steps=4", "net.standby=[\"" + address + "\"]"}));
  ASSERT_EQ(swarm.launch(sets({"run.steps=4", "optimizer.lr_decay_steps=60"})).code, 0);
  const Flags changes = sets({"optimizer.lr=1e-3", "batch.batch=4", "optimizer.lr_decay_steps=60"});
  Program coordinator = swarm.start("coordinator", changes);
  ASSERT_TRUE(coordinator.wait_for_output("swarmline peer --join"));
  const std::string join = to_string(*swarm.run().read_address());
  Program a = peer_of(swarm, join, "a"), b = peer_of(swarm, join, "b");
  Program standby(
      swarm.temp(), "standby",
      swarm.arguments("coordinator", {"--standby", "--set", "net.listen=\"" + address + "\""}));
  ASSERT_TRUE(standby.wait_for_output("standing by"));
  ASSERT_TRUE(swarm.wait_for_step(8)) << coordinator.output();
  coordinator.signal(SIGKILL);
  EXPECT_EQ(coordinator.wait(), 128 + SIGKILL);
  EXPECT_EQ(standby.wait(), 0) << standby.output();
  EXPECT_EQ(a.wait(), 0) << a.output();
  EXPECT_EQ(b.wait(), 0) << b.output();
  EXPECT_EQ(swarm.log("begun_again").size(), 1U);
  EXPECT_EQ(swarm.log("segment").size(), 1U);
  const auto config = read_text_file(swarm.run().config(), 1 << 20);
  ASSERT_TRUE(config);
  EXPECT_NE(config->find("lr = 0.001\n"), std::string::npos) << *config;
  expect_reference(swarm, kReferenceDifferenceMax, changes);
}

}  // namespace
}  // namespace swarmline
