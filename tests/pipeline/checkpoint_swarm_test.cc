// Checkpoints of a whole swarm that go wrong: the disk is full, fails, is slow or stands still, the
// coordinator does not answer in time, its links break as the last one is written. None of it ends
// the run, sends it back, or costs its last checkpoint.
#include <memory>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "pipeline/protocol/knobs.h"
#include "sim/cluster/fake_stage_model.h"
#include "sim/faults/fault.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/swarm_harness.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

RunConfig run_of(std::vector<std::uint32_t> peers, std::uint64_t every_steps) {
  RunConfig config = small_run(std::move(peers));
  config.checkpoint.every_steps = every_steps;
  config.run.steps = 8;
  config.net.collect_seconds = 5;
  return config;
}

SimClusterOptions options_of(const RunConfig& config) {
  return swarm_of(config, make_fake_model);
}

// It ends well, in its first era, with the last version in a checkpoint.
void expect_end(Swarm& swarm, const RunConfig& config) {
  swarm.finish();
  ASSERT_FALSE(testing::Test::HasFailure()) << history(swarm);
  EXPECT_EQ(events(swarm, "new_era"), 0U);
  EXPECT_EQ(swarm.cluster().checkpoint().version(), config.run.steps);
  EXPECT_EQ(swarm.cluster().parameters(), one_each(config));
}

// What heals the fault: it has to live as long as the run.
[[nodiscard]] std::unique_ptr<FaultInjector> hurt(Swarm& swarm, FaultKind kind, Duration time,
                                                  double factor = 4) {
  auto injector = std::make_unique<FaultInjector>(swarm.cluster());
  injector->apply({.kind = kind, .node = kCoordinatorNode, .time = time, .factor = factor});
  return injector;
}

bool is_committed(Swarm& swarm, std::uint64_t steps) {
  return swarm.until([&] { return commits_of(swarm.cluster()) >= steps; });
}

// ---- The disk -----------------------------------------------------------------------------------

TEST(CheckpointDisk, FullForAWhileCostsCheckpointsOnly) {
  const RunConfig config = run_of({2, 2}, 2);
  const MarkExpected failed("checkpointer.failed"), full("sim_disk.full");
  Swarm swarm(options_of(config));
  ASSERT_TRUE(is_committed(swarm, 3));
  const auto fault = hurt(swarm, FaultKind::kDiskFull, 300ms);
  expect_end(swarm, config);
  EXPECT_GT(events(swarm, "checkpoint_abandoned", "no space left"), 0U);
}

// Longer than the rest of the run: it waits for the disk with everything that it has.
TEST(CheckpointDisk, FullAtTheEndIsWaitedFor) {
  const RunConfig config = run_of({1, 1}, 0);
  const MarkExpected again("checkpointer.last_again");
  Swarm swarm(options_of(config));
  ASSERT_TRUE(is_committed(swarm, 3));
  const auto fault = hurt(swarm, FaultKind::kDiskFull, 100s);
  swarm.cluster().runtime().run_for(90s);
  EXPECT_FALSE(swarm.cluster().outcome());
  expect_end(swarm, config);
  EXPECT_GT(events(swarm, "checkpoint_abandoned"), 5U);
  EXPECT_LT(events(swarm, "checkpoint_abandoned"), 20U) << "it does not try all the time";
}

TEST(CheckpointDisk, ThatFailsNowAndThenIsTriedAgain) {
  const RunConfig config = run_of({2, 2}, 1);
  const MarkExpected error("sim_disk.error");
  Swarm swarm(options_of(config));
  ASSERT_TRUE(is_committed(swarm, 1));
  const auto fault = hurt(swarm, FaultKind::kDiskError, 20s, 3);
  expect_end(swarm, config);
  EXPECT_GT(events(swarm, "checkpoint_abandoned", "input/output error"), 0U);
}

// As long as each piece takes its time and comes: no step waits for it.
TEST(CheckpointDisk, ThatIsSlowHoldsNoStepUp) {
  const RunConfig config = run_of({2, 2}, 2);
  const MarkExpected slow("sim_disk.slow");
  Duration quick{};
  for (const bool hurts : {false, true}) {
    Swarm swarm(options_of(config));
    ASSERT_TRUE(is_committed(swarm, 1));
    std::unique_ptr<FaultInjector> fault;
    if (hurts) fault = hurt(swarm, FaultKind::kDiskSlow, 1h, 20'000);  // 40 s for each operation
    ASSERT_TRUE(is_committed(swarm, config.run.steps));
    if (!hurts) quick = swarm.cluster().elapsed();
    if (hurts) {
      EXPECT_LT(swarm.cluster().elapsed(), quick + 5ms);
    }
    expect_end(swarm, config);
    EXPECT_EQ(events(swarm, "checkpoint_abandoned"), 0U);
  }
}

TEST(CheckpointDisk, ThatStandsStillIsGivenUpAndTriedAgain) {
  const RunConfig config = run_of({1, 2}, 4);
  const MarkExpected late("checkpointer.no_progress"), stuck("sim_disk.stuck");
  Swarm swarm(options_of(config));
  ASSERT_TRUE(is_committed(swarm, 3));
  const auto fault = hurt(swarm, FaultKind::kDiskStuck, knobs().checkpoint_progress * 2);
  expect_end(swarm, config);
  EXPECT_GT(events(swarm, "checkpoint_abandoned", "made no progress"), 0U);
}

// [The run goes back while the checkpoints can't be read: it waits for the disk.]
TEST(CheckpointDisk, ThatCantBeReadIsReadLater) {
  RunConfig config = run_of({2, 1}, 2);
  const MarkExpected again("era_beginning.read_again");
  Swarm swarm(options_of(config));
  ASSERT_TRUE(swarm.until([&] { return swarm.cluster().checkpoint().complete() == 2; }));
  const auto fault = hurt(swarm, FaultKind::kDiskError, 3s, 1);
  swarm.kill_stage(1);
  swarm.cluster().add_peer({});
  swarm.finish();
  EXPECT_EQ(events(swarm, "new_era", "begins with version 4 "), 1U) << history(swarm);
  EXPECT_EQ(swarm.cluster().checkpoint().version(), config.run.steps);
  EXPECT_EQ(swarm.cluster().parameters(), one_each(config));
}

// ---- Links and processes ------------------------------------------------------------------------

// [A piece is answered later than its sender waits: it is sent again, and the checkpoint goes on.]
TEST(CheckpointPieces, AnAnswerThatComesTooLateIsAskedForAgain) {
  for (const std::uint64_t every : {0U, 4U}) {
    const RunConfig config = run_of({1, 2}, every);
    const MarkExpected upload("checkpoint_upload.piece_again"),
        again("checkpointer.piece_sent_again");
    Swarm swarm(options_of(config));
    swarm.until_started();
    const SimNodeId saver = swarm.node(1, 0);
    swarm.hold(saver, kCoordinatorNode, MessageKind::kCheckpointPiece);
    ASSERT_TRUE(swarm.until_delivered(MessageKind::kSaveStage, 2));
    swarm.cluster().runtime().run_for(Limits::rpc_deadline + 2s);
    EXPECT_GE(swarm.release(saver, kCoordinatorNode), 2U);
    expect_end(swarm, config);
    EXPECT_EQ(events(swarm, "checkpoint_abandoned"), 0U);
  }
}

// [... and nothing comes from a saver that lives: another one is asked, or the same again.]
TEST(CheckpointPieces, ASaverThatSendsNothingIsDoneWithout) {
  const RunConfig config = run_of({1, 2}, 0);
  const MarkExpected late("checkpointer.no_progress");
  Swarm swarm(options_of(config));
  swarm.until_started();
  swarm.hold(swarm.node(1, 0), kCoordinatorNode, MessageKind::kCheckpointPiece);
  expect_end(swarm, config);
  EXPECT_EQ(events(swarm, "checkpoint_abandoned", "stage 1 made no progress"), 1U);
}

// [The last checkpoint is being written, and the link to a stage's last peer breaks, or all do.]
TEST(LastCheckpoint, IsNotLostToALinkThatBreaks) {
  for (const bool all : {false, true})
    for (const bool drains : {false, true}) {
      RunConfig config = run_of({2, 1}, 0);
      const MarkExpected restarted("settling.restarted_in_last_checkpoint");
      Swarm swarm(options_of(config));
      swarm.until_started();
      const SimNodeId saver = swarm.node(1, 0);
      swarm.hold(saver, kCoordinatorNode, MessageKind::kCheckpointPiece);
      if (drains) {
        ASSERT_TRUE(is_committed(swarm, 3));
        swarm.cluster().coordinator().request_stop(false);
      }
      ASSERT_TRUE(swarm.until_delivered(MessageKind::kSaveStage, 2));
      swarm.cluster().runtime().run_for(100ms);
      for (std::size_t i = 0; i < swarm.cluster().peers(); ++i)
        if (const SimNodeId node = SimCluster::node_of_peer(i); all || node == saver)
          swarm.cluster().network().cut(kCoordinatorNode, node);
      swarm.release(saver, kCoordinatorNode);
      swarm.finish();
      ASSERT_FALSE(HasFailure()) << history(swarm);
      EXPECT_EQ(events(swarm, "lost_touch"), 1U);
      EXPECT_EQ(events(swarm, "new_era"), 0U);
      EXPECT_EQ(swarm.cluster().checkpoint().version(), commits_of(swarm.cluster()));
      if (!drains) EXPECT_EQ(swarm.cluster().parameters(), one_each(config));
    }
}

// [Somebody asks for one; whoever asks while nothing is trained is told so.]
TEST(CheckpointNow, IsOfTheNextCommitWhateverTheConfigSays) {
  RunConfig config = run_of({1, 2}, 0);
  config.checkpoint.every_steps = 0;
  const MarkExpected asked("settling.checkpoint_asked_for");
  Swarm swarm(options_of(config));
  EXPECT_EQ(swarm.cluster().coordinator().request_checkpoint().error().code, ErrorCode::kRefused);
  ASSERT_TRUE(is_committed(swarm, 3));
  const std::string step = "step-" + std::to_string(commits_of(swarm.cluster()) + 1);
  const auto answer = swarm.cluster().coordinator().request_checkpoint();
  ASSERT_TRUE(answer) << answer.error().what;
  EXPECT_NE(answer->find(step + ";"), std::string::npos) << *answer;
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "checkpoint", step) == 1; }))
      << history(swarm);
  EXPECT_EQ(events(swarm, "checkpoint"), 1U) << history(swarm);
  expect_end(swarm, config);
  EXPECT_EQ(events(swarm, "checkpoint"), 2U) << "and the last one";
}

// ---- Written by peers ---------------------------------------------------------------------------

// Everybody sees the folder, nobody, or only some of each stage: what is written is whole, and gone
// back to.
TEST(CheckpointParts, AreWrittenByThoseWhoSeeTheFolder) {
  Knobs small = knobs();
  small.part_bytes_min = 64;
  const TurnedKnobs turned(small);
  for (const std::uint32_t one_in : {0U, 1U, 2U}) {
    SCOPED_TRACE(one_in);
    RunConfig config = run_of({3, 2}, 1);
    SimClusterOptions options = options_of(config);
    options.peers.resize(5);
    for (std::size_t i = 0; i < options.peers.size(); ++i)
      options.peers[i].sees_checkpoints = one_in > 0 && i % one_in == 0;
    Swarm swarm(options);
    ASSERT_TRUE(is_committed(swarm, 5));
    swarm.kill_stage(1);
    for (int i = 0; i < 2; ++i) swarm.cluster().add_peer({.sees_checkpoints = one_in > 0});
    swarm.finish();
    ASSERT_FALSE(HasFailure()) << history(swarm);
    EXPECT_EQ(events(swarm, "new_era"), 1U);
    EXPECT_EQ(events(swarm, "new_era", "begins with version 0 "), 0U);
    EXPECT_EQ(swarm.cluster().checkpoint().version(), config.run.steps);
    EXPECT_EQ(swarm.cluster().parameters(), one_each(config));
    const std::size_t files = swarm.cluster().checkpoint().files().size();
    if (one_in == 0) EXPECT_EQ(files, 2U);
    if (one_in == 1) EXPECT_EQ(files, 5U);
  }
}

// [A writer's disk fails: it says so, and sends its pieces the next time.]
TEST(CheckpointParts, AWriterThatFailsIsDoneWithout) {
  const MarkExpected failed("checkpointer.saver_failed"),
      not_written("checkpoint_upload.not_written");
  RunConfig config = run_of({1, 2}, 1);
  SimClusterOptions options = options_of(config);
  options.peers.resize(3);
  for (SimPeer& peer : options.peers) peer.sees_checkpoints = true;
  Swarm swarm(options);
  ASSERT_TRUE(swarm.until([&] { return swarm.cluster().checkpoint().complete() == 1; }));
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kSaveStage, 1));
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kCheckpointPieceReply, 1));
  const auto fault = hurt(swarm, FaultKind::kDiskFull, 20ms);
  expect_end(swarm, config);
}

// ---- By time ------------------------------------------------------------------------------------

TEST(CheckpointsByTime, AreTheDefault) {
  RunConfig config = run_of({1, 1}, 0);
  config.checkpoint.every_minutes = 0.005;  // 0.3 s: a few steps
  Swarm swarm(options_of(config));
  expect_end(swarm, config);
  EXPECT_GE(events(swarm, "checkpoint", "memory"), 2U);
  EXPECT_LT(events(swarm, "checkpoint", "memory"), config.run.steps);
  EXPECT_EQ(CheckpointSection{}.every_minutes, 10);
}

}  // namespace
}  // namespace swarmline
