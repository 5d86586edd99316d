// Peers of a stage that are on one host sum there first, and one of them speaks for the island:
// whoever is lost, whenever, the run ends with the reference's parameters.
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/harness/mark_expected.h"
#include "tests/protocol/chunk_pairs.h"
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class IslandSums : public Protocol {
 protected:
  // A source, and a stage whose peers are on these hosts.
  RunConfig run_on(std::size_t members) const {
    RunConfig config = run_of({1, static_cast<std::uint32_t>(members)});
    config.model.d_model = 48;             // large enough that every speaker has a slice
    config.model.tied_embeddings = false;  // one group
    config.net.islands = Islands::kHost;
    return config;
  }
  static Change hosts(const std::vector<std::string>& of_members) {
    return [=](SimClusterOptions& options) {
      options.peers = {SimPeer{}};
      for (const std::string& host : of_members) options.peers.push_back({.host = host});
    };
  }
};

TEST_P(IslandSums, OneMemberOfEachHostSpeaksWithOthers) {
  const MarkExpected formed("islands.formed");
  twice(run_on(5), hosts({"left", "right", "left", "right", "alone"}), [](Swarm& swarm) {
    const auto pairs = watch_chunks(swarm);
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
    std::vector<SimNodeId> node;
    for (std::size_t i = 0; i < 5; ++i) node.push_back(swarm.node(1, i));
    std::set<ChunkPair> expected;
    for (const auto& [a, b] :
         {ChunkPair{0, 2}, ChunkPair{1, 3}, ChunkPair{0, 1}, ChunkPair{0, 4}, ChunkPair{1, 4}})
      expected.insert({{node[a], node[b]}, {node[b], node[a]}});
    EXPECT_EQ(*pairs, expected);
  });
}

// The tied embedding is averaged by two stages: there an island has peers of both.
TEST_P(IslandSums, AnEmbeddingThatTwoStagesShare) {
  RunConfig config = run_of({2, 1, 2});
  config.model.tied_embeddings = true;
  config.net.islands = Islands::kHost;
  twice(config, on({{.host = "left"}, {}, {.host = "left"}, {.host = "right"}, {.host = "right"}}),
        [](Swarm& swarm) {
          const auto pairs = watch_chunks(swarm);
          ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
          EXPECT_TRUE(pairs->contains({swarm.node(2, 0), swarm.node(0, 0)}));
          EXPECT_FALSE(pairs->contains({swarm.node(2, 0), swarm.node(0, 1)}));
        });
}

// Codecs between hosts, values as they are within one: what was lost on the way is in residuals.
TEST_P(IslandSums, CodecsAreForLinesBetweenHosts) {
  RunConfig config = run_on(4);
  config.codec.averaging = "bf16";
  SimClusterOptions options = options_for(config);
  hosts({"left", "left", "right", "right"})(options);
  Swarm swarm(std::move(options));
  swarm.until_started();
  std::uint64_t within = 0, between = 0;
  swarm.watch([&](SimNodeId from, SimNodeId to, const Frame& frame) {
    if (kind_of(frame) != MessageKind::kReduceChunk || parse<wire::ReduceChunk>(frame)->gather())
      return;
    const bool same = (from == swarm.node(1, 0) || from == swarm.node(1, 1)) ==
                      (to == swarm.node(1, 0) || to == swarm.node(1, 1));
    (same ? within : between) = frame.payload_bytes();
  });
  const RunOutcome outcome = swarm.end(120s);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.sentence;
  EXPECT_GT(within, 2 * between) << "a slice is half of the vector, and has a quarter of its bytes";
}

// Speaker or not, at each of many moments of an averaging: the attempt fails, the next one is of
// those who are left, whoever speaks then.
TEST_P(IslandSums, AMemberIsLostAtEachMomentOfAnAveraging) {
  const MarkExpected formed("islands.formed");
  for (const std::size_t lost : {0U, 1U, 2U, 3U}) {
    for (std::uint64_t chunk = 1; chunk <= 10; chunk += 3) {
      twice(run_on(4), hosts({"left", "left", "right", "right"}), [&](Swarm& swarm) {
        ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
        const std::uint64_t before = swarm.delivered(MessageKind::kReduceChunk);
        ASSERT_TRUE(swarm.until(
            [&] { return swarm.delivered(MessageKind::kReduceChunk) >= before + chunk; }));
        swarm.kill(swarm.node(1, lost));
      });
      if (testing::Test::HasFailure()) FAIL() << "member " << lost << ", chunk " << chunk;
    }
  }
}

// A host is gone with all that it had: who is left averages without islands.
TEST_P(IslandSums, AHostIsLost) {
  twice(run_on(4), hosts({"left", "left", "right", "right"}), [](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
    ASSERT_TRUE(swarm.until_delivered(MessageKind::kReduceChunk, 2));
    swarm.kill(swarm.node(1, 0));
    swarm.kill(swarm.node(1, 1));
  });
}

// It hears of the seal when its island has sent all that it may.
TEST_P(IslandSums, ASpeakerHearsOfTheSealLast) {
  SimClusterOptions options = options_for(run_on(3));
  hosts({"left", "left", "right"})(options);
  Swarm swarm(std::move(options));
  swarm.until_started();
  const SimNodeId speaker = swarm.node(1, 0);
  bool held = false;
  std::uint64_t early = 0;
  swarm.rule([&](SimNodeId from, SimNodeId to, const Frame& frame) {
    if (held || from != kCoordinatorNode || to != speaker || kind_of(frame) != MessageKind::kSeal)
      return FrameFate{};
    held = true;
    return FrameFate{.kind = FrameFate::Kind::kHold, .delay = {}};
  });
  swarm.watch([&](SimNodeId, SimNodeId to, const Frame& frame) {
    early += held && to == speaker && kind_of(frame) == MessageKind::kReduceChunk;
  });
  ASSERT_TRUE(swarm.until([&] { return early >= 2; }));
  swarm.cluster().runtime().run_for(1s);
  swarm.release(kCoordinatorNode, speaker);
  expect_reference(swarm, run_on(3));
}

// The link within an island breaks: another attempt over a new one. That between members who have
// nothing to say to each other breaks: nobody minds.
TEST_P(IslandSums, ALinkBreaks) {
  for (const auto& [a, b] : {std::pair{0, 1}, std::pair{0, 2}, std::pair{1, 3}}) {
    SimClusterOptions options = options_for(run_on(4));
    hosts({"left", "left", "right", "right"})(options);
    Swarm swarm(std::move(options));
    swarm.until_started();
    ASSERT_TRUE(swarm.until_delivered(MessageKind::kReduceChunk, 3));
    const std::uint64_t broken = swarm.delivered(MessageKind::kRoundBroken);
    swarm.cluster().network().cut(swarm.node(1, a), swarm.node(1, b));
    expect_reference(swarm, run_on(4));
    if (std::pair{a, b} == std::pair{1, 3})
      EXPECT_EQ(swarm.delivered(MessageKind::kRoundBroken), broken);
  }
}

// Peers that say they are on one host and are not, and can't reach each other: one is released, as
// of any two mates.
TEST_P(IslandSums, AWrongWordCostsNoMoreThanAMember) {
  SimClusterOptions options = options_for(run_on(3));
  hosts({"left", "left", "right"})(options);
  Swarm swarm(std::move(options));
  swarm.until_started();
  swarm.part(swarm.node(1, 0), swarm.node(1, 1));
  const RunOutcome outcome = swarm.end(120s);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.sentence;
}

INSTANTIATE_TEST_SUITE_P(Delay, IslandSums, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
