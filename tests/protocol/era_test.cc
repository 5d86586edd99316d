// Stages that lose every holder of their state: the run goes back to its newest complete checkpoint
// by itself, under the next era, and ends with the reference's parameters.
#include "pipeline/protocol/knobs.h"
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class Era : public Protocol {
 protected:
  // Five peers, of which those of stage 1 will die: three remain for three stages.
  RunConfig run(std::uint64_t checkpoint_every) const {
    RunConfig config = run_of({2, 2, 1});
    config.run.steps = 6;
    config.checkpoint.every_steps = checkpoint_every;
    config.net.peers_wait_seconds = 20;
    return config;
  }
  // One of stage 1 comes for those that die; then the next era begins, or the run ends.
  static void end_era(Swarm& swarm) {
    const std::size_t starts = events(swarm, "start");
    kill_all_of(swarm, 1);
    swarm.cluster().add_peer({});
    swarm.until([&] { return swarm.cluster().outcome() || events(swarm, "start") > starts; });
  }
  // Those on their way there, too.
  static void kill_all_of(Swarm& swarm, std::uint16_t stage) {
    SimCluster& cluster = swarm.cluster();
    for (std::size_t i = 0; i < cluster.peers(); ++i) {
      const SimNodeId node = SimCluster::node_of_peer(i);
      if (cluster.runtime().is_alive(node) && swarm.stage_of(node) == stage) swarm.kill(node);
    }
  }
  // Models of the eras before are gone.
  static void expect_end(Swarm& swarm, const RunConfig& config) {
    swarm.finish();
    if (!testing::Test::HasFailure())
      expect_equal(swarm.cluster().parameters(), reference_of(config));
  }
  // Nothing was done to it: it hears the same as the run's other peers.
  static void expect_it_ended_with_its_run(Swarm& swarm, SimNodeId node) {
    const auto& outcome = swarm.cluster().outcome_of(node - 1);
    ASSERT_TRUE(swarm.until([&] { return outcome.has_value(); }, 5s));
    EXPECT_EQ(outcome->exit_code, 0);
    EXPECT_EQ(outcome->sentence, swarm.cluster().outcome()->sentence);
  }
  static std::size_t eras_from(Swarm& swarm, std::uint64_t version) {
    return events(swarm, "new_era", "begins with version " + std::to_string(version) + " ");
  }
};

// [All of a stage die at forward, backward, report, seal, reduce, commit and after it.]
TEST_P(Era, AllOfAStageAreKilledAtEachPartOfAStep) {
  const RunConfig config = run(2);
  for (const MessageKind part :
       {MessageKind::kForward, MessageKind::kGradient, MessageKind::kReport, MessageKind::kSeal,
        MessageKind::kReduceChunk, MessageKind::kReduced, MessageKind::kCommit,
        MessageKind::kStepped})
    for (const std::uint64_t count : {1, 2, 5}) {
      Swarm swarm(options_for(config));
      swarm.until_committed(3);
      ASSERT_TRUE(swarm.until_delivered(part, count)) << to_string(part);
      kill_all_of(swarm, 1);
      expect_end(swarm, config);
      EXPECT_EQ(events(swarm, "new_era"), 1U);
      EXPECT_EQ(eras_from(swarm, 2) + eras_from(swarm, 4), 1U);
      if (testing::Test::HasFailure()) FAIL() << to_string(part) << " " << count;
    }
}

TEST_P(Era, WithoutACheckpointTheRunBeginsAgain) {
  const RunConfig config = run(0);
  Swarm swarm(options_for(config));
  swarm.until_committed(3);
  kill_all_of(swarm, 1);
  expect_end(swarm, config);
  EXPECT_EQ(eras_from(swarm, 0), 1U);
}

// [A checkpoint loses its sender with all of the stage: the one before is the newest complete one.]
TEST_P(Era, AllOfAStageAreKilledDuringACheckpoint) {
  const RunConfig config = run(2);
  Swarm swarm(options_for(config));
  swarm.until_started();
  ASSERT_TRUE(swarm.until([&] { return swarm.cluster().checkpoint().complete() == 1; }));
  const SimNodeId saver = swarm.node(1, 0);
  swarm.hold(saver, kCoordinatorNode, MessageKind::kCheckpointPiece);
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 4; }));
  kill_all_of(swarm, 1);
  expect_end(swarm, config);
  EXPECT_EQ(eras_from(swarm, 2), 1U);
  EXPECT_EQ(events(swarm, "checkpoint_abandoned", "step-4"), 1U);
}

// [... and during the last one, when there is no step left to do.]
TEST_P(Era, AllOfAStageAreKilledDuringTheLastCheckpoint) {
  const RunConfig config = run(4);
  Swarm swarm(options_for(config));
  swarm.until_started();
  const SimNodeId saver = swarm.node(1, 0);
  ASSERT_TRUE(swarm.until([&] { return swarm.cluster().checkpoint().complete() == 1; }));
  swarm.hold(saver, kCoordinatorNode, MessageKind::kCheckpointPiece);
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 6; }));
  swarm.cluster().runtime().run_for(1s);
  EXPECT_FALSE(swarm.cluster().outcome());
  kill_all_of(swarm, 1);
  expect_end(swarm, config);
  EXPECT_EQ(eras_from(swarm, 4), 1U);
}

// [A joiner is fetching its stage's state when all who have it die: it starts over with them.]
TEST_P(Era, AllOfAStageAreKilledWhileOneJoins) {
  RunConfig config = run(2);
  config.pipeline.peers = {2, 1, 1};
  Swarm swarm(options_for(config));
  swarm.until_committed(3);
  swarm.cluster().add_peer({});
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kPiece, 1));
  kill_all_of(swarm, 1);
  expect_end(swarm, config);
  EXPECT_EQ(events(swarm, "new_era"), 1U);
}

// They come as the run writes its last checkpoint: they wait for its end, and are there if the run
// goes back instead.
TEST_P(Era, WhoComesAsTheRunEndsIsThereIfItGoesBack) {
  for (const bool goes_back : {false, true}) {
    RunConfig config = run_of({1, 1});
    config.run.steps = 3;
    Swarm swarm(options_for(config));
    swarm.until_committed(1);
    const SimNodeId saver = swarm.node(1, 0);
    swarm.hold(saver, kCoordinatorNode, MessageKind::kCheckpointPiece);
    ASSERT_TRUE(swarm.until_delivered(MessageKind::kSaveStage, 2));
    const SimNodeId newcomer = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
    ASSERT_TRUE(swarm.until_delivered(MessageKind::kHello, 1, newcomer));
    swarm.cluster().runtime().run_for(1s);
    EXPECT_TRUE(swarm.cluster().is_running(newcomer - 1));
    if (goes_back)
      swarm.kill(saver);
    else
      swarm.release(saver, kCoordinatorNode);
    expect_end(swarm, config);
    EXPECT_EQ(events(swarm, "new_era"), goes_back ? 1U : 0U);
    expect_it_ended_with_its_run(swarm, newcomer);
  }
}

// ... or say hello while its peers are being told: nothing was done to them either.
TEST_P(Era, WhoComesWhenTheRunHasEndedEndsAsItsPeersDo) {
  RunConfig config = run_of({1, 1});
  config.run.steps = 3;
  Swarm swarm(options_for(config));
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "end") == 1; }));
  const SimNodeId newcomer = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
  expect_end(swarm, config);
  expect_it_ended_with_its_run(swarm, newcomer);
}

// Its coordinator is killed as it says so: the next one has nothing to go back to, and says the
// same to whoever asks.
TEST_P(Era, AnEndIsWrittenOnceAndToldAgain) {
  RunConfig config = run_of({1, 1});
  config.run.steps = 3;
  Swarm swarm(options_for(config));
  swarm.until_committed(1);
  const SimNodeId peer = swarm.node(0, 0);
  swarm.hold(kCoordinatorNode, peer, MessageKind::kShutdown);
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "end") == 1; }));
  ASSERT_TRUE(swarm.until([&] { return !swarm.cluster().is_running(swarm.node(1, 0) - 1); }));
  swarm.cluster().kill_coordinator();
  const SimNodeId newcomer = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
  swarm.release(kCoordinatorNode, peer);
  swarm.cluster().restart_coordinator();
  swarm.finish();
  for (const SimNodeId node : {peer, newcomer}) expect_it_ended_with_its_run(swarm, node);
  EXPECT_EQ(events(swarm, "end"), 1U) << history(swarm);
  EXPECT_EQ(events(swarm, "new_era"), 0U) << history(swarm);
}

// There is nothing left to write down: it says from where the run will go on.
TEST_P(Era, ARunThatWasEndingSaysWhereItGoesOn) {
  const RunConfig config = run(2);
  Swarm swarm(options_for(config));
  swarm.until_committed(3);
  swarm.cluster().coordinator().request_stop(false);
  kill_all_of(swarm, 1);
  const RunOutcome outcome = swarm.end(10s);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.sentence.find("resumes from memory:step-2"), std::string::npos)
      << outcome.sentence;
}

TEST_P(Era, ADamagedCheckpointIsPassedOver) {
  const RunConfig config = run(2);
  Swarm swarm(options_for(config));
  swarm.until_started();
  ASSERT_TRUE(swarm.until([&] { return swarm.cluster().checkpoint().complete() == 2; }));
  swarm.cluster().damage_newest_checkpoint();
  kill_all_of(swarm, 1);
  expect_end(swarm, config);
  EXPECT_EQ(eras_from(swarm, 2), 1U);
}

// On its way from the coordinator, not on the disk.
TEST_P(Era, AnErasStateThatComesDamagedIsFetchedAgain) {
  const RunConfig config = run(2);
  Swarm swarm(options_for(config));
  swarm.until_committed(3);
  std::uint64_t hurt = 0;
  swarm.rule([&](SimNodeId from, SimNodeId, const Frame& frame) -> FrameFate {
    if (from != kCoordinatorNode || kind_of(frame) != MessageKind::kPiece ||
        hurt == 5 * knobs().damaged_in_a_row)
      return {};
    const_cast<Frame&>(frame).payload = {SharedBytes(Buffer(frame.payload_bytes()))};
    ++hurt;
    return {};
  });
  kill_all_of(swarm, 1);
  expect_end(swarm, config);
  EXPECT_EQ(eras_from(swarm, 2), 1U);
}

// [The stage dies again while the new era's state is on its way, and again after it has begun.]
TEST_P(Era, AllOfAStageAreKilledAgainAndAgain) {
  RunConfig config = run(2);
  config.pipeline.peers = {3, 3, 3};
  Swarm swarm(options_for(config));
  swarm.until_committed(3);
  kill_all_of(swarm, 1);
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kPieceRequest, 2));
  kill_all_of(swarm, 0);
  for (int i = 0; i < 2; ++i) swarm.cluster().add_peer({});
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "start") == 2; }));
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kGradient, 1));
  swarm.cluster().add_peer({});
  kill_all_of(swarm, 2);
  for (int i = 0; i < 2; ++i) swarm.cluster().add_peer({});
  expect_end(swarm, config);
  EXPECT_GE(events(swarm, "new_era"), 2U);
}

// [The stage dies again, when the others have their seats and wait for it: one of them goes there.]
TEST_P(Era, AnEmptyStageIsFilledFromOneThatHasSeveral) {
  RunConfig config = run(2);
  config.pipeline.peers = {2, 2, 2};
  Swarm swarm(options_for(config));
  swarm.until_committed(3);
  kill_all_of(swarm, 1);
  // Four are left: stage 0 gets two of them.
  SimCluster& cluster = swarm.cluster();
  ASSERT_TRUE(swarm.until([&] {
    std::size_t seated = 0;
    for (std::size_t i = 0; i < cluster.peers(); ++i)
      seated += cluster.is_running(i) && cluster.peer(i).seat().incarnation.value == 2;
    return seated == 4;
  }));
  kill_all_of(swarm, 2);
  expect_end(swarm, config);
  EXPECT_EQ(events(swarm, "peer_moves", "stage 2 lacks a peer"), 1U);
}

// [Fewer peers are left than stages: whoever joins within the time is enough.]
TEST_P(Era, TooFewAreLeftUntilOneJoins) {
  RunConfig config = run(2);
  config.pipeline.peers = {1, 1, 1};
  Swarm swarm(options_for(config));
  swarm.until_committed(3);
  kill_all_of(swarm, 2);
  swarm.cluster().runtime().run_for(12s);
  EXPECT_FALSE(swarm.cluster().outcome());
  swarm.cluster().add_peer({});
  expect_end(swarm, config);
  EXPECT_EQ(eras_from(swarm, 2), 1U);
}

// [A fenced peer of the old era wakes in the middle of the new one: it joins it as a newcomer.]
TEST_P(Era, AFrozenStageWakesInTheNextEra) {
  RunConfig config = run(2);
  config.run.steps = 30;
  config.net.peer_silence_seconds = 3;
  Swarm swarm(options_for(config));
  swarm.until_committed(3);
  const SimNodeId frozen[] = {swarm.node(1, 0), swarm.node(1, 1)};
  for (const SimNodeId node : frozen) swarm.freeze(node);
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 5; }));
  for (const SimNodeId node : frozen) swarm.thaw(node);
  expect_end(swarm, config);
  EXPECT_EQ(events(swarm, "new_era"), 1U);
  EXPECT_EQ(events(swarm, "peer_seated"), 2U);
}

// Steps that were skipped before the checkpoint count: bias corrections are those of the updates.
TEST_P(Era, SkippedStepsBeforeTheCheckpointAreKnown) {
  RunConfig config = run(2);
  config.run.on_nonfinite = NonFinite::kSkip;
  Swarm swarm(options_for(config, poison()));
  swarm.until_committed(3);
  kill_all_of(swarm, 1);
  swarm.finish();
  expect_equal(swarm.cluster().parameters(), reference_with(config, poison()));
  EXPECT_EQ(eras_from(swarm, 2), 1U);
}

// [... and the coordinator dies before anything is committed in the new era: the next one knows.]
TEST_P(Era, UpdatesAreKnownToACoordinatorThatComesBeforeTheFirstCommit) {
  RunConfig config = run(2);
  config.run.on_nonfinite = NonFinite::kSkip;
  Swarm swarm(options_for(config, poison()));
  swarm.until_committed(3);
  kill_all_of(swarm, 1);
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "start") == 2; }));
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kGradient, 1));
  swarm.cluster().kill_coordinator();
  swarm.cluster().restart_coordinator();
  swarm.finish();
  expect_equal(swarm.cluster().parameters(), reference_with(config, poison()));
  EXPECT_EQ(events(swarm, "new_era"), 1U);
  EXPECT_EQ(events(swarm, "begun_again"), 1U);
}

// [Reading the checkpoint takes longer than a Hello may wait for its answer, and a heartbeat for
// its own: nobody is lost over it, and those who come meanwhile are seated when it has been read.]
TEST_P(Era, ACheckpointIsReadWhileOthersAreHeard) {
  const RunConfig config = run(2);
  for (const Duration reading : {20s, 100s}) {
    SimClusterOptions options = options_for(config);
    options.checkpoint_read = reading;
    Swarm swarm(std::move(options));
    swarm.until_committed(3);
    const Duration before = swarm.cluster().elapsed();
    kill_all_of(swarm, 1);
    swarm.cluster().runtime().run_for(reading / 2);
    EXPECT_FALSE(swarm.cluster().coordinator().takes_peers());
    if (reading == 20s) swarm.cluster().add_peer({});
    expect_end(swarm, config);
    EXPECT_GE(swarm.cluster().elapsed() - before, reading);
    EXPECT_EQ(eras_from(swarm, 2), 1U);
    EXPECT_EQ(events(swarm, "peer_lost"), 2U);  // those that were killed
    if (testing::Test::HasFailure()) return;
  }
}

// [The coordinator dies while it reads: the next one reads it, too.]
TEST_P(Era, ACoordinatorThatDiesAsItReadsTheCheckpoint) {
  const RunConfig config = run(2);
  SimClusterOptions options = options_for(config);
  options.checkpoint_read = 20s;
  Swarm swarm(std::move(options));
  swarm.until_committed(3);
  kill_all_of(swarm, 1);
  swarm.cluster().runtime().run_for(10s);
  swarm.cluster().kill_coordinator();
  swarm.cluster().runtime().run_for(500ms);
  swarm.cluster().restart_coordinator();
  swarm.cluster().runtime().run_for(100ms);  // it had sent everybody off: nobody is waited for
  EXPECT_FALSE(swarm.cluster().coordinator().takes_peers());
  expect_end(swarm, config);
  EXPECT_EQ(eras_from(swarm, 2), 1U);
}

// Stopped meanwhile it ends; the checkpoint is there for the next time.
TEST_P(Era, ARunIsStoppedWhileItsCheckpointIsRead) {
  const RunConfig config = run(2);
  SimClusterOptions options = options_for(config);
  options.checkpoint_read = 20s;
  Swarm swarm(std::move(options));
  swarm.until_committed(3);
  kill_all_of(swarm, 1);
  swarm.cluster().runtime().run_for(10s);
  swarm.cluster().coordinator().request_stop(false);
  EXPECT_EQ(swarm.end(1s).exit_code, 0);
  swarm.cluster().runtime().run_for(11s);
  EXPECT_EQ(events(swarm, "new_era"), 0U);
  for (std::size_t i = 0; i < swarm.cluster().peers(); ++i)
    EXPECT_FALSE(swarm.cluster().is_running(i)) << "peer " << i << " waits for its answer";
}

// The same events give the same run.
TEST_P(Era, GoingBackIsDeterministic) {
  twice(run(2), [](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }));
    kill_all_of(swarm, 1);
  });
}

// Eras take a moment each; what disturbs all of them for seconds is outlasted.
TEST_P(Era, ErasThatEndAtOnceForSomeSecondsDoNotEndTheRun) {
  RunConfig config = run(0);
  config.pipeline.peers = {1, 1};
  config.pipeline.stages = 2;
  Swarm swarm(options_for(config));
  swarm.until_started();
  const Duration end = swarm.cluster().elapsed() + 8s;
  while (swarm.cluster().elapsed() < end && !swarm.cluster().outcome()) {
    end_era(swarm);
  }
  expect_end(swarm, config);
  EXPECT_GT(events(swarm, "new_era"), 8U);
}

// [Every era ends before it gets anywhere: the run does not go round for ever.]
TEST_P(Era, ErasThatGetNowhereEndTheRun) {
  RunConfig config = run(0);
  config.pipeline.peers = {1, 1};
  config.pipeline.stages = 2;
  Swarm swarm(options_for(config));
  swarm.until_started();
  for (int era = 0; era < 40 && !swarm.cluster().outcome(); ++era) {
    end_era(swarm);
  }
  const RunOutcome outcome = swarm.end(10s);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.sentence.find("went back 16 times"), std::string::npos) << outcome.sentence;
}

INSTANTIATE_TEST_SUITE_P(Delay, Era, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
