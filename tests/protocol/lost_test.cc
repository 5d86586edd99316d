// Links that go, and runs that lose more peers than they have stages: the run goes on and equals
// the reference, or ends within seconds with a sentence. Never a hang.
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class Lost : public Protocol {};

// Two peers can't serve three stages, and nobody joins.
TEST_P(Lost, TooFewPeersForTheStagesEndTheRunWithinSeconds) {
  for (std::uint16_t stage = 0; stage < 3; ++stage) {
    RunConfig config = run_of({1, 1, 1});
    config.net.peers_wait_seconds = 6;
    Swarm swarm(options_for(config));
    swarm.until_committed(1);
    const SimNodeId gone = swarm.node(stage, 0);
    const PeerId peer = swarm.cluster().peer(gone - 1).seat().peer;
    swarm.kill(gone);
    const RunOutcome outcome = swarm.end(10s);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_NE(outcome.sentence.find("peer " + std::to_string(peer.value)), std::string::npos)
        << outcome.sentence;
    EXPECT_NE(outcome.sentence.find("was lost"), std::string::npos) << outcome.sentence;
    swarm.cluster().runtime().run_for(5s);  // what is on the wire changes nothing more
  }
}

// A link between two live peers breaks, at each of many moments: the run goes on over a new one.
TEST_P(Lost, ALinkBetweenTwoLivePeersIsCut) {
  for (const bool tied : {false, true}) {
    RunConfig config = run_of({2, 2, 2});
    config.model.tied_embeddings = tied;
    config.wiring.hop_timeout_seconds = 2;
    for (std::uint32_t moment = 0; moment < 24; ++moment) {
      Swarm swarm(options_for(config));
      swarm.until_started();
      swarm.cluster().runtime().run_for(moment * 13ms);
      // Forward links, links of mates, and of the two stages that share the embedding.
      const std::pair<SimNodeId, SimNodeId> pairs[] = {{swarm.node(0, 0), swarm.node(1, 0)},
                                                       {swarm.node(1, 0), swarm.node(2, 1)},
                                                       {swarm.node(1, 0), swarm.node(1, 1)},
                                                       {swarm.node(0, 1), swarm.node(2, 0)}};
      const auto [from, to] = pairs[moment % 4];
      swarm.cluster().network().cut(from, to);
      expect_reference(swarm, config);
      if (testing::Test::HasFailure()) FAIL() << "moment " << moment << " tied " << tied;
    }
  }
}

// The two stages that share the embedding average it together: each waits for the other. A link
// that breaks once is averaged over again.
TEST_P(Lost, ALinkBreaksUnderTheTiedEmbedding) {
  RunConfig config = run_of({1, 1, 1});
  config.model.tied_embeddings = true;
  Swarm swarm(options_for(config));
  swarm.lose(
      [&](SimNodeId from, SimNodeId to, const Frame& frame) {
        if (kind_of(frame) != MessageKind::kReduceChunk ||
            !parse<wire::ReduceChunk>(frame)->gather())
          return false;
        EXPECT_NE(swarm.stage_of(from), swarm.stage_of(to));
        return true;
      },
      1);
  expect_reference(swarm, config);
  EXPECT_EQ(swarm.lost(), 1U);
}

// Two mates that can't reach each other, while both reach the coordinator: one is released.
TEST_P(Lost, TwoMatesThatCannotReachEachOtherDoNotStopTheRun) {
  const RunConfig config = run_of({1, 3});
  Swarm swarm(options_for(config));
  swarm.until_started();
  const SimNodeId a = swarm.node(1, 0), b = swarm.node(1, 1);
  swarm.part(a, b);
  const RunOutcome outcome = swarm.end(120s);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.sentence;
  const auto& survivor = swarm.cluster();
  const Tensors tensors = survivor.parameters_of(swarm.node(1, 2) - 1);
  Reference wanted = reference_of(config);
  std::erase_if(wanted.tensors, [&](const auto& entry) { return !tensors.contains(entry.first); });
  expect_equal(tensors, wanted);
}

// The word that there is room again is lost with its link: whoever waited for it tries again.
TEST_P(Lost, ACreditIsLostWithItsLink) {
  RunConfig config = run_of({1, 1});
  config.net.admit_bytes = 1;
  config.pipeline.in_flight = 4;
  Swarm swarm(options_for(config));
  swarm.lose([](SimNodeId, SimNodeId,
                const Frame& frame) { return kind_of(frame) == MessageKind::kCredit; },
             3);
  expect_reference(swarm, config);
  EXPECT_GT(swarm.lost(), 0U);
}

// A link that can't be dialled again: the sender has another peer, or the run says what it could
// not send, once it has tried for as long as it should.
TEST_P(Lost, ALinkStaysCut) {
  for (const std::uint32_t receivers : {2U, 1U}) {
    RunConfig config = run_of({1, receivers});
    config.net.outlast_seconds = 20;
    Swarm swarm(options_for(config));
    swarm.until_started();
    const SimNodeId a = swarm.node(0, 0), b = swarm.node(1, 0);
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
    swarm.part(a, b);
    const RunOutcome outcome = swarm.end(60s);
    if (receivers == 2 && outcome.exit_code == 0) {
      expect_equal(swarm.cluster().parameters(), reference_of(config));
    } else {
      EXPECT_EQ(outcome.exit_code, 1);
      EXPECT_FALSE(outcome.sentence.empty());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Delay, Lost, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
