// The end of a step: what is in the sums and what the ledger says must be the same before anything
// is averaged.
#include <map>
#include <memory>
#include <set>

#include "tests/harness/mark_expected.h"
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class SealOrder : public Protocol {};

// B adds and reports, but its words stay on the way: its senders go past it, the step completes
// without it. The seal names what B owns (nothing), and what it added is taken out before it seals.
TEST_P(SealOrder, ALateAddIsTakenOutBeforeSealing) {
  RunConfig config = run_of({1, 2});
  config.wiring.hop_timeout_seconds = 0.5;
  Swarm swarm(options_for(config));
  swarm.until_started();
  const SimNodeId a = swarm.node(0, 0), b = swarm.node(1, 0);
  std::uint64_t step = 0, late = 0, refused = 0;
  std::uint32_t owned = 0, accepted = 0;
  std::uint64_t counted = 0;
  bool holding = false, sealed = false;
  swarm.rule([&](SimNodeId from, SimNodeId to, const Frame& frame) {
    if (from != b || to != a || kind_of(frame) != MessageKind::kGradient || holding)
      return FrameFate{};
    // From a gradient on of the step that is the next to commit, nothing of what B says arrives.
    step = attempt_of(frame)->microbatch.phase.step;
    if (step == 0 || step != commits_of(swarm.cluster())) return FrameFate{};
    holding = true;
    swarm.hold(b, a);
    swarm.hold(b, kCoordinatorNode);
    return FrameFate{.kind = FrameFate::Kind::kHold, .delay = {}};
  });
  swarm.watch([&](SimNodeId from, SimNodeId to, const Frame& frame) {
    if (to == b && kind_of(frame) == MessageKind::kSeal &&
        parse<wire::Seal>(frame)->phase().step() == step && holding) {
      sealed = true;
      for (const auto& range : parse<wire::Seal>(frame)->owned()) owned += range.count();
    }
    if (to == b && kind_of(frame) == MessageKind::kReportAck && !sealed) {
      const auto ack = parse<wire::ReportAck>(frame);
      if (ack->phase().step() == 0) return;
      if (ack->phase().step() != counted) counted = ack->phase().step(), accepted = 0;
      accepted += static_cast<std::uint32_t>(ack->accepted_size());
    }
    if (!sealed) return;
    if (from == b && kind_of(frame) == MessageKind::kReport)
      late += parse<wire::Report>(frame)->contributions_size();
    if (to == b && kind_of(frame) == MessageKind::kReportAck)
      refused += parse<wire::ReportAck>(frame)->refused_size();
  });
  ASSERT_TRUE(swarm.until([&] { return sealed; })) << swarm.cluster().coordinator().status_json();
  EXPECT_EQ(owned, counted == step ? accepted : 0U);
  swarm.cluster().runtime().run_for(200ms);
  swarm.release(b, a);
  swarm.release(b, kCoordinatorNode);
  expect_reference(swarm, config);
  EXPECT_GT(late, 0U) << "B had added nothing: the sequence did not happen";
  EXPECT_GE(refused, late);
}

// B is at work on microbatches when the step ends without it.
TEST_P(SealOrder, ASealArrivesWhileABackwardIsOnTheDevice) {
  RunConfig config = run_of({1, 2});
  config.wiring.hop_timeout_seconds = 0.5;
  SimClusterOptions options = options_for(config);
  options.peers = {SimPeer{}, {.forward = 4ms, .backward = 3s}, SimPeer{}};
  Swarm swarm(std::move(options));
  swarm.until_started();
  const SimNodeId b = 2;
  ASSERT_EQ(swarm.stage_of(b), 1U);
  std::uint32_t owned = 0, seals = 0;
  swarm.watch([&](SimNodeId, SimNodeId to, const Frame& frame) {
    if (to != b || kind_of(frame) != MessageKind::kSeal) return;
    ++seals;
    for (const auto& range : parse<wire::Seal>(frame)->owned()) owned += range.count();
  });
  expect_reference(swarm, config);
  EXPECT_EQ(seals, config.run.steps);
  EXPECT_LT(owned, config.run.steps * 4) << "the slow peer was waited for";
}

// A slow peer's forwards keep its device busy while a gradient waits; the step ends without it and
// the gradient's graph goes.
TEST_P(SealOrder, ASealArrivesWhileABackwardWaits) {
  RunConfig config = run_of({1, 2, 1});
  config.wiring.hop_timeout_seconds = 1.5;
  SimClusterOptions options = options_for(config);
  options.peers.assign(4, SimPeer{});
  options.peers[1] = {.forward = 1s, .backward = 1s};
  Swarm swarm(std::move(options));
  swarm.until_started();
  ASSERT_EQ(swarm.stage_of(2), 1U);
  expect_reference(swarm, config);
  EXPECT_GT(swarm.delivered(MessageKind::kCancel, {}, 2), 0U);
}

// One member hears of the seal after its mates have sent their parts.
TEST_P(SealOrder, ChunksComeBeforeTheSeal) {
  RunConfig config = run_of({1, 3});
  config.model.d_model = 48;  // large enough that every member has a slice
  Swarm swarm(options_for(config));
  swarm.until_started();
  const SimNodeId b = swarm.node(1, 1);
  std::uint64_t early = 0;
  bool held = false;
  swarm.rule([&](SimNodeId from, SimNodeId to, const Frame& frame) {
    if (held || from != kCoordinatorNode || to != b || kind_of(frame) != MessageKind::kSeal)
      return FrameFate{};
    held = true;
    return FrameFate{.kind = FrameFate::Kind::kHold, .delay = {}};
  });
  swarm.watch([&](SimNodeId, SimNodeId to, const Frame& frame) {
    early += held && to == b && kind_of(frame) == MessageKind::kReduceChunk;
  });
  ASSERT_TRUE(swarm.until([&] { return early >= 2; }));
  EXPECT_EQ(swarm.delivered(MessageKind::kSeal, kCoordinatorNode, b), 0U);
  swarm.cluster().runtime().run_for(1s);
  swarm.release(kCoordinatorNode, b);
  expect_reference(swarm, config);
}

// Of three members the one in the middle says that its link is slow: it gets no slice, and the sums
// are those of equal ones. One that is lost on the way leaves two, between whom slices are equal.
TEST_P(SealOrder, AMemberWithASlowLinkSumsNothing) {
  const MarkExpected cut("uneven_slices.cut");
  RunConfig config = run_of({1, 3});
  config.model.d_model = 48;  // large enough that every member would have a slice
  for (const bool one_is_lost : {false, true})
    twice(
        config,
        [](SimClusterOptions& options) {
          options.peers.assign(4, {.bandwidth = 1e9});
          options.peers[2].bandwidth = 1e8;
        },
        [&](Swarm& swarm) {
          const SimNodeId slow = swarm.node(1, 1), other = swarm.node(1, 2);
          const auto summed = std::make_shared<std::map<SimNodeId, std::uint64_t>>();
          swarm.watch([summed](SimNodeId from, SimNodeId, const Frame& frame) {
            (*summed)[from] += kind_of(frame) == MessageKind::kReduceChunk &&
                               parse<wire::ReduceChunk>(frame)->gather();
          });
          ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
          EXPECT_EQ((*summed)[slow], 0U);
          EXPECT_GT((*summed)[other], 0U);
          if (!one_is_lost) return;
          ASSERT_TRUE(swarm.until_delivered(MessageKind::kReduceChunk, 2));
          swarm.kill(other);
          ASSERT_TRUE(swarm.until([&] { return (*summed)[slow] > 0; }));
        });
}

// Both ways of one microbatch come back to the sender: the second answer changes nothing.
TEST_P(SealOrder, TwoAnswersCountOnce) {
  RunConfig config = run_of({1, 2, 1});
  config.wiring.hop_timeout_seconds = 0.5;
  Swarm swarm(options_for(config));
  swarm.until_started();
  const SimNodeId a = swarm.node(0, 0), b = swarm.node(1, 0), d = swarm.node(2, 0);
  std::map<MicrobatchId, std::set<Attempt>> answers;
  swarm.watch([&](SimNodeId, SimNodeId to, const Frame& frame) {
    if (to == a && kind_of(frame) == MessageKind::kGradient)
      answers[attempt_of(frame)->microbatch].insert(attempt_of(frame)->attempt);
  });
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
  // B works on and D serves it; only the way back from B to A is slow, until the other way has
  // ended.
  const std::uint64_t answered = swarm.delivered(MessageKind::kGradient, swarm.node(1, 1), a);
  swarm.hold(b, a);
  ASSERT_TRUE(swarm.until([&] { return swarm.delivered(MessageKind::kCancel, a, b) > 0; }));
  ASSERT_TRUE(swarm.until(
      [&] { return swarm.delivered(MessageKind::kGradient, swarm.node(1, 1), a) > answered; }));
  swarm.release(b, a);
  expect_reference(swarm, config);
  EXPECT_TRUE(std::any_of(answers.begin(), answers.end(),
                          [](const auto& entry) { return entry.second.size() > 1; }));
  EXPECT_GT(swarm.delivered(MessageKind::kForward, {}, d), 0U);
}

// A source is lost after the seal; the other one hears that the step is open again and starts what
// is missing before the stage after it has even heard of the seal.
TEST_P(SealOrder, AMicrobatchIsLeasedAgainBeforeTheSealIsHere) {
  const RunConfig config = run_of({2, 1, 1});
  Swarm swarm(options_for(config));
  swarm.until_started();
  const SimNodeId b = swarm.node(1, 0), c = swarm.node(2, 0);
  std::set<SimNodeId> owners;  // of the second step; with a delay one source may have all of it
  swarm.watch([&](SimNodeId from, SimNodeId, const Frame& frame) {
    if (kind_of(frame) != MessageKind::kReport || swarm.stage_of(from) != 0) return;
    if (parse<wire::Report>(frame)->phase().step() == 1) owners.insert(from);
  });
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
  swarm.hold(kCoordinatorNode, b, MessageKind::kSeal);
  ASSERT_TRUE(swarm.until([&] { return !owners.empty(); }));
  const SimNodeId gone = *owners.begin();
  const SimNodeId a = gone == swarm.node(0, 0) ? swarm.node(0, 1) : swarm.node(0, 0);
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kSeal, 1, {}, gone));
  swarm.kill(gone);
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kReopen, 1, {}, a));
  swarm.hold(c, b, MessageKind::kGradient);
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kForward, 1, a, b));
  swarm.cluster().runtime().run_for(200ms);
  EXPECT_EQ(swarm.delivered(MessageKind::kSeal, {}, b), 1U) << "the sequence did not happen";
  swarm.release(kCoordinatorNode, b);
  swarm.cluster().runtime().run_for(200ms);
  swarm.release(c, b);
  expect_reference(swarm, config, 1);
}

// The step is open again for the last stage; then the stage before it loses contributions too, and
// one of its members gets a microbatch that wants its contribution before it may add.
TEST_P(SealOrder, AMicrobatchIsLeasedAgainBeforeTheSecondReopenIsHere) {
  RunConfig config = run_of({1, 2, 2});
  Swarm swarm(options_for(config));
  swarm.until_started();
  const SimNodeId a = swarm.node(0, 0), b = swarm.node(1, 0), e = swarm.node(1, 1);
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
  swarm.hold(b, e, MessageKind::kReduceChunk);
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kSeal, 1, {}, swarm.node(2, 0)));
  swarm.kill(swarm.node(2, 0));
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kReopen, 1, {}, b));
  swarm.hold(kCoordinatorNode, b, MessageKind::kReopen);
  swarm.kill(e);
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kReopen, 1, {}, a));
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kForward, 1, a, b));
  swarm.cluster().runtime().run_for(200ms);
  swarm.release(kCoordinatorNode, b);
  expect_reference(swarm, config);
  EXPECT_GE(swarm.delivered(MessageKind::kReopen, {}, b), 2U) << "the sequence did not happen";
}

INSTANTIATE_TEST_SUITE_P(Delay, SealOrder, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
