// Bugs of other systems, each by its name, and that they are not here. tests/README.md lists all of
// them, with those that other tests show.
#include <set>

#include "pipeline/coordinator/coordinator.h"
#include "tests/harness/mark_expected.h"
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class Rivals : public Protocol {
 protected:
  static void until_committed(Swarm& swarm, std::uint64_t version) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) >= version; }));
  }
  // What was said of parameters and optimizer state, by stage and version.
  using States = std::map<std::pair<StageId, std::uint64_t>, std::set<std::uint64_t>>;
  static void watch_states(Swarm& swarm, States& states) {
    swarm.watch([&states](SimNodeId, SimNodeId to, const Frame& frame) {
      if (to != kCoordinatorNode || kind_of(frame) != MessageKind::kStepped) return;
      const auto stepped = parse<wire::Stepped>(frame);
      const Seat seat = from_wire(stepped->seat());
      states[{seat.stage, stepped->version()}].insert(stepped->state_digest());
    });
  }
  static void expect_one_state_each(const States& states) {
    EXPECT_FALSE(states.empty());
    for (const auto& [key, digests] : states)
      EXPECT_EQ(digests.size(), 1U) << "stage " << key.first.value << ", version " << key.second;
  }
};

// A step without delay needs what is averaged.
class RivalsWithDelay : public Rivals {};

// SWARM's code: a backward that was applied, and whose answer comes too late, is applied once more
// elsewhere.
TEST_P(Rivals, ABackwardWhoseAnswerIsLateIsNotCountedTwice) {
  RunConfig config = run_of({1, 2, 1});
  config.wiring.hop_timeout_seconds = 0.3;
  twice(config, [&](Swarm& swarm) {
    const SimNodeId a = swarm.node(0, 0), b = swarm.node(1, 0), c = swarm.node(1, 1);
    until_committed(swarm, 1);
    swarm.hold(b, a, MessageKind::kGradient);
    const std::uint64_t elsewhere = swarm.delivered(MessageKind::kForward, a, c);
    swarm.cluster().runtime().run_for(1s);
    EXPECT_GT(swarm.delivered(MessageKind::kForward, a, c), elsewhere) << "it was sent elsewhere";
    swarm.release(b, a);
  });
}

// SWARM's code: samples that a dead peer had accumulated still count towards the batch.
TEST_P(Rivals, WhatADeadPeerHadAccumulatedDoesNotCount) {
  const MarkExpected lost("ledger.owner_lost"), again("ledger.missing_leased_again");
  twice(run_of({1, 2, 1}), [&](Swarm& swarm) {
    const SimNodeId b = swarm.node(1, 0);
    until_committed(swarm, 1);
    ASSERT_TRUE(swarm.until_delivered(MessageKind::kReportAck, 2, {}, b));
    swarm.kill(b);
  });
}

// SWARM's code: gradients are clipped while they are summed, and weigh by the square of a peer's
// share. Here shares are 1:4, and the clip is always at work.
TEST_P(Rivals, TheSumIsClippedOnceWhateverTheShares) {
  RunConfig config = run_of({1, 2});
  config.optimizer.clip = 0.01;
  const std::vector<SimPeer> machines = {
      SimPeer{}, {.forward = 2ms, .backward = 4ms}, {.forward = 8ms, .backward = 16ms}};
  twice(config, on(machines), [&](Swarm& swarm) {
    until_committed(swarm, 2);
    EXPECT_LT((*swarm.cluster().journal().last_commit())->clip_scale, 1);
  });
}

// SWARM's code: devices stand still for as long as a stage averages, up to a quarter of the time.
TEST_P(RivalsWithDelay, DevicesComputeWhileAStageAverages) {
  RunConfig config = run_of({1, 2});
  config.run.steps = 6;
  Swarm swarm(options_for(config));
  swarm.until_started();
  const SimNodeId one = swarm.node(1, 0), other = swarm.node(1, 1);
  swarm.hold(one, other, MessageKind::kReduceChunk);
  ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kSeal, {}, one) == 1; }));
  const std::uint64_t before = swarm.delivered(MessageKind::kReport);
  swarm.cluster().runtime().run_for(2s);
  EXPECT_EQ(commits_of(swarm.cluster()), 0U);
  EXPECT_GT(swarm.delivered(MessageKind::kReport), before);
  swarm.release(one, other);
  expect_reference(swarm, config);
}

// hivemind: one dead reducer ends the whole group's round.
TEST_P(Rivals, ADeadReducerDoesNotEndItsGroupsRound) {
  RunConfig config = run_of({1, 4});
  config.model.d_model = 48;  // large enough that every member reduces a slice
  twice(config, [&](Swarm& swarm) {
    until_committed(swarm, 1);
    const SimNodeId gone = swarm.node(1, 2);
    ASSERT_TRUE(swarm.until_delivered(MessageKind::kReduceChunk, 1, {}, gone));
    swarm.kill(gone);
    EXPECT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) >= 2; }, 5s));
  });
}

// hivemind: a peer whose averaging failed steps by its own gradient, and replicas drift apart.
TEST_P(Rivals, APeerWhoseAveragingFailsDoesNotStepByItself) {
  RunConfig config = run_of({1, 3});
  config.model.d_model = 48;
  States states;
  Swarm swarm(options_for(config));
  watch_states(swarm, states);
  swarm.until_started();
  const SimNodeId a = swarm.node(1, 0), b = swarm.node(1, 1);
  swarm.lose(
      [&](SimNodeId from, SimNodeId to, const Frame& frame) {
        return from == a && to == b && kind_of(frame) == MessageKind::kReduceChunk;
      },
      2);
  expect_reference(swarm, config);
  EXPECT_EQ(swarm.lost(), 2U);
  expect_one_state_each(states);
}

// SWARM's code: tensors pass through the trainer, quantized one way only.
TEST_P(Rivals, TensorsGoFromPeerToPeerQuantizedBothWays) {
  RunConfig config = run_of({1, 2, 1});
  config.model.d_model = 48;
  config.codec.forward = config.codec.backward = "lin8";
  std::map<MessageKind, std::set<std::uint64_t>> sizes;
  Swarm swarm(options_for(config));
  swarm.watch([&](SimNodeId from, SimNodeId to, const Frame& frame) {
    const MessageKind kind = kind_of(frame);
    if (frame.payload_bytes() == 0) return;
    if (from == kCoordinatorNode || to == kCoordinatorNode)
      EXPECT_EQ(kind, MessageKind::kCheckpointPiece) << to_string(kind);
    sizes[kind].insert(frame.payload_bytes());
  });
  swarm.until_started();
  swarm.finish();
  const std::uint64_t elements =
      std::uint64_t{config.batch.microbatch} * config.batch.sequence * config.model.d_model;
  for (const MessageKind kind : {MessageKind::kForward, MessageKind::kGradient}) {
    ASSERT_EQ(sizes[kind].size(), 1U) << to_string(kind);
    EXPECT_LT(*sizes[kind].begin(), 2 * elements + 128) << to_string(kind);
  }
}

// SWARM's code: whoever joins loads the newest checkpoint, though its stage is further.
TEST_P(Rivals, ACheckpointDoesNotReplaceWhatPeersHold) {
  RunConfig config = run_of({1, 2});
  config.run.steps = 12;
  config.checkpoint.every_steps = 2;
  Swarm swarm(options_for(config));
  std::uint64_t offered = 0;
  swarm.watch([&](SimNodeId, SimNodeId, const Frame& frame) {
    if (kind_of(frame) == MessageKind::kStateOffer)
      offered = std::max(offered, parse<wire::StateOffer>(frame)->version());
  });
  swarm.until_started();
  until_committed(swarm, 5);
  EXPECT_EQ(events(swarm, "checkpoint"), 2U);  // the newest is of version 4
  swarm.cluster().add_peer(SimPeer{});
  expect_reference(swarm, config);
  EXPECT_GE(offered, 5U);
  EXPECT_EQ(events(swarm, "peer_seated"), 1U);
}

// PCCL: a member that is stopped stops its group for ever.
TEST_P(Rivals, AFrozenMemberDoesNotStopTheAllReduce) {
  RunConfig config = run_of({1, 3});
  config.model.d_model = 48;
  config.net.peer_silence_seconds = NetSection{}.peer_silence_seconds;
  twice(config, [&](Swarm& swarm) {
    until_committed(swarm, 1);
    const SimNodeId b = swarm.node(1, 1);
    ASSERT_TRUE(swarm.until_delivered(MessageKind::kReduceChunk, 1, {}, b));
    swarm.freeze(b);
    EXPECT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) >= 2; }, 4s));
    swarm.thaw(b);
  });
}

// torchft with torchtitan: a replica that healed goes on with other optimizer scalars.
TEST_P(Rivals, APeerThatComesBackStepsAsItsMatesDo) {
  RunConfig config = run_of({1, 2});
  config.run.steps = 16;
  config.optimizer.schedule = LearningSchedule::kCosine;
  config.optimizer.warmup_steps = 4;
  config.net.peer_silence_seconds = 1;
  States states;
  Swarm swarm(options_for(config));
  watch_states(swarm, states);
  swarm.until_started();
  until_committed(swarm, 2);
  const SimNodeId b = swarm.node(1, 1);
  swarm.freeze(b);
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_lost") == 1; }));
  swarm.thaw(b);
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }));
  ASSERT_LT(commits_of(swarm.cluster()), 14U);
  swarm.finish();
  expect_equal(swarm.cluster().parameters(), reference_of(config));
  expect_one_state_each(states);
}

// Bamboo: neighbours in the pipeline that are lost together end the run.
TEST_P(Rivals, NeighboursLostInOneInstantAreSurvived) {
  const MarkExpected doubt("ledger.doubted"), again("forwarder.sent_again_after_link_loss");
  twice(run_of({2, 2, 2, 2}), [&](Swarm& swarm) {
    until_committed(swarm, 1);
    const auto before = swarm.delivered(MessageKind::kForward);
    ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kForward) > before + 8; }));
    const SimNodeId b = swarm.node(1, 1), c = swarm.node(2, 0);
    swarm.kill(b);
    swarm.kill(c);
  });
}

// The same between two steps, when they hold nothing that has to be sent again.
TEST_P(Rivals, NeighboursLostAtACommitAreSurvived) {
  twice(run_of({2, 2, 2, 2}), [&](Swarm& swarm) {
    until_committed(swarm, 1);
    const SimNodeId b = swarm.node(1, 1), c = swarm.node(2, 0);
    swarm.kill(b);
    swarm.kill(c);
  });
}

// Agora: an activation gradient is pushed once; when that fails the microbatch is dropped where it
// came from, while the stages after it have counted it.
TEST_P(Rivals, AGradientThatIsLostOnItsWayIsNotDropped) {
  twice(run_of({1, 1, 1}), [&](Swarm& swarm) {
    const SimNodeId a = swarm.node(0, 0), b = swarm.node(1, 0);
    swarm.lose(
        [=](SimNodeId from, SimNodeId to, const Frame& frame) {
          return from == b && to == a && kind_of(frame) == MessageKind::kGradient;
        },
        3);
    ASSERT_TRUE(swarm.until([&] { return swarm.lost() == 3; }));
  });
}

INSTANTIATE_TEST_SUITE_P(Delay, Rivals, testing::Values(0U, 1U), [](const auto& info) {
  return info.param == 0 ? "Synchronous" : "Delayed";
});

INSTANTIATE_TEST_SUITE_P(Delay, RivalsWithDelay, testing::Values(1U));

}  // namespace
}  // namespace swarmline
