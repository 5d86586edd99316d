// Room and order of arrival: full peers, peers a commit behind, chunks before their seal.
#include <set>
#include <utility>

#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class Admission : public Protocol {
 protected:
  struct Counts {
    std::uint64_t full = 0, other = 0;
  };
  // From the first commit on, nothing from the coordinator reaches `late`.
  static void hold_commits(Swarm& swarm, SimNodeId late) {
    swarm.rule([late, held = false](SimNodeId from, SimNodeId to, const Frame& frame) mutable {
      const bool commit =
          from == kCoordinatorNode && to == late && kind_of(frame) == MessageKind::kCommit;
      if (!commit || std::exchange(held, true)) return FrameFate{};
      return FrameFate{.kind = FrameFate::Kind::kHold, .delay = {}};
    });
  }

  // With room for one microbatch a peer, the run equals the reference and only forwards are
  // refused.
  Counts run_full(const RunConfig& config) {
    Swarm swarm(options_for(config));
    Counts refused;
    std::set<std::pair<SimNodeId, AttemptId>> forwards_refused, gradients;
    swarm.watch([&](SimNodeId from, SimNodeId to, const Frame& frame) {
      if (kind_of(frame) == MessageKind::kGradient) gradients.insert({to, *attempt_of(frame)});
      if (kind_of(frame) != MessageKind::kRefused) return;
      const auto message = parse<wire::Refused>(frame);
      ++(message->why() == wire::Refused::FULL ? refused.full : refused.other);
      EXPECT_FALSE(gradients.contains({from, from_wire(message->id())}))
          << "it refused what would empty it";
    });
    expect_reference(swarm, config);
    EXPECT_GT(gradients.size(), 0U);
    return refused;
  }
};

TEST_P(Admission, AFullPeerNeverRefusesTheGradient) {
  RunConfig config = run_of({2, 2, 1});
  config.net.admit_bytes = 1;
  config.pipeline.in_flight = 8;
  const Counts refused = run_full(config);
  EXPECT_GT(refused.full, 0U) << "no peer was ever full: the sequence did not happen";
  EXPECT_EQ(refused.other, 0U);
}

TEST_P(Admission, FixedRoutesWaitForAFullPeer) {
  RunConfig config = run_of({2, 2, 1});
  config.net.admit_bytes = 1;
  config.pipeline.in_flight = 8;
  config.pipeline.wiring = WiringKind::kStatic;
  EXPECT_GT(run_full(config).full, 0U);
}

TEST_P(Admission, TwoSendersShareOneFullPeer) {
  RunConfig config = run_of({2, 1, 1});
  config.net.admit_bytes = 1;
  config.pipeline.in_flight = 8;
  EXPECT_GT(run_full(config).full, 0U);
}

// One of two receivers does not hear of the commit for a while: what comes for the next step waits
// there, is not refused and costs it nothing.
TEST_P(Admission, ACommitReachesTheSenderFirst) {
  RunConfig config = run_of({1, 2});
  Swarm swarm(options_for(config));
  swarm.until_started();
  const SimNodeId late = swarm.node(1, 0);
  hold_commits(swarm, late);
  // What opens with that commit; with delay, what opens when the step after it is sealed.
  const std::uint64_t next = 1 + GetParam();
  std::uint64_t early = 0;
  swarm.watch([&](SimNodeId, SimNodeId to, const Frame& frame) {
    EXPECT_NE(kind_of(frame), MessageKind::kStallReport);
    if (to == late && kind_of(frame) == MessageKind::kForward)
      early += attempt_of(frame)->microbatch.phase.step >= next;
  });
  ASSERT_TRUE(swarm.until([&] { return early > 0; })) << "no forward overtook the commit";
  swarm.cluster().runtime().run_for(1s);
  EXPECT_EQ(swarm.delivered(MessageKind::kRefused), 0U);
  EXPECT_GT(swarm.release(kCoordinatorNode, late), 0U);
  const std::uint64_t before = early;
  expect_reference(swarm, config);
  EXPECT_EQ(swarm.delivered(MessageKind::kRefused), 0U);
  EXPECT_GT(early, before) << "it was given no more work: it was charged";
}

// The same with little patience and little room: what was cancelled while it waited gives its room
// back.
TEST_P(Admission, WhatIsCancelledWhileItWaitsGivesItsRoomBack) {
  RunConfig config = run_of({1, 2});
  config.net.admit_bytes = 1;
  config.wiring.hop_timeout_seconds = 0.3;
  Swarm swarm(options_for(config));
  swarm.until_started();
  const SimNodeId late = swarm.node(1, 0);
  hold_commits(swarm, late);
  ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kCancel, {}, late) > 0; }));
  swarm.release(kCoordinatorNode, late);
  expect_reference(swarm, config);
}

// The output is kept until the gradient has come back and been decoded: it takes room as well.
TEST_P(Admission, TheOutputThatIsKeptTakesRoom) {
  RunConfig config = run_of({1, 1, 1});
  config.pipeline.in_flight = 8;
  config.pipeline.recompute = Recompute::kNever;
  const ModelSpec spec = *resolve_model(config, 31);
  const StageSpec middle{.stage = StageId{1}, .stages = 3, .first_layer = 1, .last_layer = 3};
  const std::uint64_t elements =
      std::uint64_t{config.batch.microbatch} * config.batch.sequence * spec.hidden_width();
  const std::uint64_t wire = encoded_bytes({.kind = CodecKind::kNone}, elements, DType::kF64);
  const std::uint64_t one = wire + elements * sizeof(double) +
                            retained_bytes(spec, middle, config.batch.microbatch, false) + wire;
  for (const auto& [room, fit] : {std::pair{2 * one, 2U}, {2 * one - 1, 1U}}) {
    config.net.admit_bytes = room;
    Swarm swarm(options_for(config));
    swarm.until_started();
    const SimNodeId node = swarm.node(1, 0);
    std::set<AttemptId> taken;
    std::size_t most = 0;
    swarm.rule([&](SimNodeId from, SimNodeId, const Frame& frame) {
      const bool ends =
          kind_of(frame) == MessageKind::kGradient || kind_of(frame) == MessageKind::kRefused;
      if (from == node && ends) taken.erase(*attempt_of(frame));
      return FrameFate{};
    });
    swarm.watch([&](SimNodeId, SimNodeId to, const Frame& frame) {
      // What was taken before is judged when it is refused or the next one comes.
      if (to == node && kind_of(frame) == MessageKind::kForward) {
        most = std::max(most, taken.size());
        taken.insert(*attempt_of(frame));
      }
    });
    expect_reference(swarm, config);
    EXPECT_EQ(most, fit);
  }
}

// A credit is what a sender waits for when everybody is full, and the answer to a cancel when the
// only one is banned. Where it is lost, the link is lost, and that ends the waiting too.
TEST_P(Admission, ACreditThatIsLostWithItsLinkIsNotWaitedFor) {
  const auto lose_credits = [](Swarm& swarm, std::uint32_t& lost) {
    swarm.rule([&lost](SimNodeId, SimNodeId, const Frame& frame) {
      if (kind_of(frame) != MessageKind::kCredit || lost == 3) return FrameFate{};
      ++lost;
      return FrameFate{.kind = FrameFate::Kind::kDropConnection, .delay = {}};
    });
  };
  RunConfig full = run_of({1, 1, 1});
  full.net.admit_bytes = 1;
  full.pipeline.in_flight = 8;
  std::uint32_t lost = 0;
  {
    Swarm swarm(options_for(full));
    lose_credits(swarm, lost);
    expect_reference(swarm, full);
    EXPECT_EQ(lost, 3U);
  }
  RunConfig banned = run_of({1, 1});
  banned.wiring.hop_timeout_seconds = 0.5;
  lost = 0;
  Swarm swarm(options_for(banned));
  lose_credits(swarm, lost);
  swarm.until_started();
  const SimNodeId only = swarm.node(1, 0);
  ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kForward, {}, only) > 0; }));
  swarm.freeze(only);
  swarm.cluster().runtime().run_for(2s);
  swarm.thaw(only);
  expect_reference(swarm, banned);
  EXPECT_GT(lost, 0U);
}

// A source asks for leases again and again while its swarm is told to stop after the open step.
TEST_P(Admission, LeasesOfTheOpenStepGoOnAfterADrain) {
  RunConfig config = run_of({2, 2});
  config.pipeline.in_flight = 1;
  Swarm swarm(options_for(config));
  swarm.until_committed(1);
  const std::uint64_t leases = swarm.delivered(MessageKind::kLeases);
  swarm.cluster().runtime().run_for(20ms);
  swarm.cluster().coordinator().request_stop(false);
  swarm.finish();
  EXPECT_GT(swarm.delivered(MessageKind::kLeases), leases);
  const std::uint64_t steps = commits_of(swarm.cluster());
  EXPECT_LT(steps, config.run.steps);
  RunConfig shorter = config;
  shorter.run.steps = steps;
  expect_equal(swarm.cluster().parameters(), reference_of(shorter));
  expect_no_graphs();
}

INSTANTIATE_TEST_SUITE_P(Delay, Admission, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
