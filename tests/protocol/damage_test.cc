// Bytes that change on the way, beyond what a connection's own checks see: the tensor is sent
// again, nobody is blamed, each index counts once.
#include "compression/codec.h"
#include "pipeline/protocol/knobs.h"
#include "tests/harness/mark_expected.h"
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class Damage : public Protocol {
 protected:
  // On its way: the sender's own bytes stay whole.
  static void damage(const Frame& frame) {
    Buffer copy = Buffer::copy_of(frame.received_payload());
    copy.bytes()[kWireHeaderBytes + 5] ^= std::byte{0x10};
    const_cast<Frame&>(frame).payload = {SharedBytes(std::move(copy))};
  }
  // Every `every`-th tensor of that kind arrives with one byte changed.
  void damaged(MessageKind kind, const std::vector<std::uint32_t>& peers, std::uint64_t every) {
    const RunConfig config = run_of(peers);
    Swarm swarm(options_for(config));
    std::uint64_t seen = 0, hurt = 0;
    swarm.rule([&](SimNodeId, SimNodeId, const Frame& frame) -> FrameFate {
      if (kind_of(frame) != kind || frame.payload.empty() || ++seen % every != 0) return {};
      damage(frame);
      ++hurt;
      return {};
    });
    expect_reference(swarm, config);
    EXPECT_GT(hurt, 2U);
    EXPECT_EQ(events(swarm, "peer_lost"), 0U);
  }
};

TEST_P(Damage, AnActivationIsSentAgain) {
  damaged(MessageKind::kForward, {1, 2, 1}, 3);
  damaged(MessageKind::kForward, {2, 1}, 4);
}

// Whoever sent it has forgotten the microbatch: it is computed again there, and counts once.
TEST_P(Damage, AGradientIsAskedForAgain) {
  const MarkExpected asked_again("returner.damaged_gradient_asked_again");
  damaged(MessageKind::kGradient, {1, 2, 1}, 3);
  damaged(MessageKind::kGradient, {2, 1}, 4);
}

// As long as tries are left: they are spread over more than a second.
TEST_P(Damage, AStageThatGetsNothingWholeForASecondIsWaitedFor) {
  const RunConfig config = run_of({1, 2, 1});
  Swarm swarm(options_for(config));
  swarm.until_started();
  const Duration end = swarm.cluster().elapsed() + std::chrono::seconds(1);
  std::uint64_t hurt = 0;
  swarm.rule([&](SimNodeId, SimNodeId to, const Frame& frame) -> FrameFate {
    if (kind_of(frame) != MessageKind::kForward || swarm.stage_of(to) != 1 ||
        swarm.cluster().elapsed() > end)
      return {};
    damage(frame);
    ++hurt;
    return {};
  });
  expect_reference(swarm, config);
  EXPECT_GT(hurt, 8U);
}

TEST_P(Damage, ACheckpointIsWrittenAgain) {
  const RunConfig config = run_of({1, 2});
  Swarm swarm(options_for(config));
  bool hurt = false;
  swarm.rule([&](SimNodeId, SimNodeId, const Frame& frame) -> FrameFate {
    if (kind_of(frame) != MessageKind::kCheckpointPiece || frame.payload.empty() || hurt) return {};
    damage(frame);
    hurt = true;
    return {};
  });
  expect_reference(swarm, config);
  EXPECT_TRUE(hurt);
  EXPECT_EQ(events(swarm, "checkpoint_abandoned"), 1U);
  EXPECT_EQ(events(swarm, "checkpoint"), 1U);
  EXPECT_EQ(swarm.cluster().checkpoint().files().size(), config.pipeline.stages);
}

// It waits at a member that has not been told to seal; then it costs the link, and another attempt
// at the sum, as one that comes later does.
TEST_P(Damage, AChunkThatComesBeforeTheSealIsAveragedAgain) {
  RunConfig config = run_of({1, 2});
  config.model.d_model = 48;  // large enough that every member has a slice
  Swarm swarm(options_for(config));
  swarm.until_started();
  const SimNodeId late = swarm.node(1, 0), mate = swarm.node(1, 1);
  swarm.hold(kCoordinatorNode, late, MessageKind::kSeal);
  std::uint64_t hurt = 0;
  swarm.rule([&](SimNodeId from, SimNodeId to, const Frame& frame) -> FrameFate {
    if (kind_of(frame) == MessageKind::kReduceChunk && from == mate && to == late && hurt++ == 0)
      damage(frame);
    return {};
  });
  ASSERT_TRUE(
      swarm.until([&] { return swarm.delivered(MessageKind::kReduceChunk, mate, late) > 0; }));
  EXPECT_GT(swarm.release(kCoordinatorNode, late), 0U);
  expect_reference(swarm, config);
  EXPECT_GT(hurt, 1U) << "it was averaged again";
  EXPECT_EQ(events(swarm, "peer_lost"), 0U);
}

// Its link breaks in the averaging, so it fetches the sum from a mate; for a while no piece of that
// comes whole, whoever is asked. Nobody is lost, and nobody waits for a deadline.
TEST_P(Damage, ASumThatIsFetchedDamagedIsFetchedAgain) {
  RunConfig config = run_of({1, 3});
  config.model.d_model = 48;
  Swarm swarm(options_for(config));
  swarm.until_started();
  const SimNodeId late = swarm.node(1, 1), mate = swarm.node(1, 2);
  bool broken = false;
  std::uint64_t hurt = 0;
  Duration end{};
  swarm.rule([&](SimNodeId from, SimNodeId to, const Frame& frame) -> FrameFate {
    if (to != late) return {};
    if (!broken && from == mate && kind_of(frame) == MessageKind::kReduceChunk &&
        parse<wire::ReduceChunk>(frame)->gather()) {
      broken = true;
      end = swarm.cluster().elapsed() + 600ms;
      return {.kind = FrameFate::Kind::kDropConnection, .delay = {}};
    }
    if (kind_of(frame) == MessageKind::kPiece && swarm.cluster().elapsed() < end) {
      damage(frame);
      ++hurt;
    }
    return {};
  });
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) > 1; }, 10s));
  EXPECT_GT(hurt, 2U * knobs().damaged_in_a_row) << "of both that have it";
  expect_reference(swarm, config);
  EXPECT_EQ(events(swarm, "peer_lost"), 0U);
}

TEST_P(Damage, ANewcomersStateIsFetchedAgain) {
  RunConfig config = run_of({1, 2});
  config.run.steps = 30;
  Swarm swarm(options_for(config));
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
  const SimNodeId newcomer = SimCluster::node_of_peer(swarm.cluster().add_peer({}));
  std::uint64_t hurt = 0;
  swarm.rule([&](SimNodeId, SimNodeId to, const Frame& frame) -> FrameFate {
    if (to != newcomer || kind_of(frame) != MessageKind::kPiece || hurt > 8) return {};
    damage(frame);
    ++hurt;
    return {};
  });
  expect_reference(swarm, config);
  EXPECT_GT(hurt, 8U);
  EXPECT_EQ(events(swarm, "peer_seated"), 1U);
  EXPECT_EQ(swarm.delivered(MessageKind::kWantState, newcomer), 1U) << "what is here is kept";
}

INSTANTIATE_TEST_SUITE_P(Delay, Damage, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
