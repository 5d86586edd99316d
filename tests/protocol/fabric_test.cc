// Islands of GPUs sum past links: whoever is lost, whatever fails, the run ends with the
// reference's parameters.
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "sim/cluster/resident_model.h"
#include "tests/harness/mark_expected.h"
#include "tests/protocol/chunk_pairs.h"
#include "tests/protocol/protocol_fixture.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class FabricSums : public Protocol {
 protected:
  // A source, and a stage of so many peers, each with a GPU.
  RunConfig run_on(std::size_t members) const {
    RunConfig config = run_of({1, static_cast<std::uint32_t>(members)});
    config.model.d_model = 48;
    config.model.tied_embeddings = false;
    config.net.islands = Islands::kHost;
    return config;
  }
  static void put_on_devices(SimClusterOptions& options, bool room_for_islands = true) {
    options.make_model = [inner = std::move(options.make_model), room_for_islands](
                             const ModelSpec& spec, const StageSpec& stage,
                             const StageModelOptions& how) -> Result<std::unique_ptr<StageModel>> {
      auto model = inner(spec, stage, how);
      if (!model) return model;
      auto bus = std::make_shared<DeviceBus>();
      bus->room_for_islands = room_for_islands;
      return on_a_device(std::move(*model), std::nullopt, std::move(bus));
    };
  }
  // Of these hosts; each member has a card of its own.
  static Change gpus_of(const std::vector<std::string>& hosts) {
    return [=](SimClusterOptions& options) {
      put_on_devices(options);
      options.peers = {SimPeer{}};
      for (const std::string& host : hosts)
        options.peers.push_back(
            {.host = host,
             .gpu = SimFabricPlace{.host = host,
                                   .card = static_cast<std::uint32_t>(options.peers.size())}});
    };
  }
  static std::uint64_t met(Swarm& swarm) { return swarm.cluster().fabrics().counters().met; }
  static std::uint64_t moved(Swarm& swarm) {
    return swarm.cluster().fabrics().counters().transfers;
  }
  // `moment`: so many transfers after the first commit.
  static void until_moved(Swarm& swarm, std::uint64_t moment) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
    const std::uint64_t before = moved(swarm);
    ASSERT_TRUE(swarm.until([&] { return moved(swarm) >= before + moment; }));
  }
};

TEST_P(FabricSums, ChunksGoBetweenThoseWhoSpeakAlone) {
  twice(run_on(5), gpus_of({"left", "right", "left", "right", "left"}), [](Swarm& swarm) {
    const auto pairs = watch_chunks(swarm);
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }));
    const SimNodeId left = swarm.node(1, 0), right = swarm.node(1, 1);
    EXPECT_EQ(*pairs, (std::set<ChunkPair>{{left, right}, {right, left}}));
    EXPECT_EQ(met(swarm), 2U) << "an island meets once";
    // A slice to each and one back, then a slice to each and on from there.
    EXPECT_GE(moved(swarm), 3U * (6 + 2 + 2 + 2 + 2 + 1 + 1));
  });
}

TEST_P(FabricSums, AHostThatHasTheWholeStageNeedsNoLinks) {
  twice(run_on(3), gpus_of({"one", "one", "one"}), [](Swarm& swarm) {
    const auto pairs = watch_chunks(swarm);
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }));
    EXPECT_TRUE(pairs->empty());
    EXPECT_EQ(met(swarm), 1U);
  });
}

TEST_P(FabricSums, PeersThatShareACardMapItsMemory) {
  const Change change = [](SimClusterOptions& options) {
    gpus_of({"one", "one", "two"})(options);
    for (SimPeer& peer : options.peers)
      if (peer.gpu) peer.gpu->card = 0;
  };
  twice(run_on(3), change, [](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
    EXPECT_EQ(met(swarm), 1U);
  });
}

// One island has GPUs, the other does not; and where it is not wanted nobody meets.
TEST_P(FabricSums, NotEveryIslandHasAFabric) {
  const Change change = [](SimClusterOptions& options) {
    gpus_of({"left", "left", "right", "right"})(options);
    for (SimPeer& peer : options.peers)
      if (peer.host == "right") peer.gpu.reset();
  };
  twice(run_on(4), change, [](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
    EXPECT_EQ(met(swarm), 1U);
  });
  RunConfig config = run_on(2);
  config.net.fabric = FabricChoice::kNone;
  twice(config, gpus_of({"one", "one"}), [](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
    EXPECT_EQ(met(swarm), 0U);
  });
}

TEST_P(FabricSums, AnEmbeddingThatTwoStagesShare) {
  RunConfig config = run_of({2, 1, 2});
  config.model.tied_embeddings = true;
  config.net.islands = Islands::kHost;
  const auto gpu = [](const char* host, std::uint32_t card) {
    return SimPeer{.host = host, .gpu = SimFabricPlace{.host = host, .card = card}};
  };
  const Change change = [&](SimClusterOptions& options) {
    put_on_devices(options);
    options.peers = {gpu("left", 0), SimPeer{}, gpu("left", 1), gpu("right", 0), gpu("right", 1)};
  };
  twice(config, change, [](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
    EXPECT_GE(met(swarm), 2U);
  });
}

// Values as they are within a host, a codec between hosts; encoded where they are.
TEST_P(FabricSums, ACodecIsForLinesBetweenHosts) {
  const MarkExpected encoded("device_rounds.begun");
  RunConfig config = run_on(4);
  config.codec.averaging = "lin8";
  SimClusterOptions options = options_for(config);
  gpus_of({"left", "left", "right", "right"})(options);
  Swarm swarm(std::move(options));
  swarm.finish();  // replicas are bit-equal
  EXPECT_EQ(met(swarm), 2U);
}

// Speaker or not, at each of many moments of an averaging.
TEST_P(FabricSums, AMemberIsLostAtEachMomentOfAnAveraging) {
  for (const std::size_t lost : {0U, 1U, 3U}) {
    for (std::uint64_t moment = 1; moment <= 10; moment += 3) {
      twice(run_on(4), gpus_of({"left", "left", "left", "right"}), [&](Swarm& swarm) {
        until_moved(swarm, moment);
        swarm.kill(swarm.node(1, lost));
      });
      if (testing::Test::HasFailure()) FAIL() << "member " << lost << ", transfer " << moment;
    }
  }
}

// An exchange fails at one member: over links the next time, and past them in the next step.
TEST_P(FabricSums, AnExchangeFails) {
  const MarkExpected failed("commit_round.fabric_failed");
  twice(run_on(3), gpus_of({"left", "left", "right"}), [](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
    swarm.cluster().fabrics().break_exchange(swarm.node(1, 1));
    const auto pairs = watch_chunks(swarm);
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
    EXPECT_TRUE(pairs->contains({swarm.node(1, 1), swarm.node(1, 0)}));
    pairs->clear();
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }));
    EXPECT_FALSE(pairs->contains({swarm.node(1, 1), swarm.node(1, 0)}));
    EXPECT_EQ(met(swarm), 2U);
  });
}

TEST_P(FabricSums, AFabricThatFailsTwiceIsGivenUp) {
  const MarkExpected given_up("island_fabrics.given_up");
  const Change change = [](SimClusterOptions& options) {
    gpus_of({"left", "left", "right"})(options);
    options.fabric.errors = 1;
  };
  twice(run_on(3), change, [](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 2; }));
    EXPECT_GE(swarm.cluster().fabrics().counters().failed, 2U);
    const std::uint64_t words = swarm.delivered(MessageKind::kFabricWord);
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 4; }));
    EXPECT_EQ(swarm.delivered(MessageKind::kFabricWord), words);
  });
}

// The arena of an island's sum is as large as the gradient.
TEST_P(FabricSums, ADeviceWithoutRoomSumsOverLinks) {
  const MarkExpected failed("island_rounds.failed");
  const Change change = [](SimClusterOptions& options) {
    auto inner = options.make_model;
    gpus_of({"left", "left", "right"})(options);
    options.make_model = std::move(inner);
    put_on_devices(options, /*room_for_islands=*/false);
  };
  twice(run_on(3), change, [](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }));
    EXPECT_EQ(events(swarm, "peer_lost"), 0U);
  });
}

// Nothing moves, and nobody says so.
TEST_P(FabricSums, AFabricStalls) {
  const Change change = [](SimClusterOptions& options) {
    gpus_of({"left", "left", "right"})(options);
    options.fabric.patience = 2s;
  };
  twice(run_on(3), change, [](Swarm& swarm) {
    ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 1; }));
    swarm.cluster().fabrics().stall(swarm.node(1, 0));
  });
}

// The link within an island carries words alone: another attempt, another meeting.
TEST_P(FabricSums, ALinkBreaks) {
  for (std::uint64_t moment = 1; moment <= 5; moment += 2) {
    twice(run_on(3), gpus_of({"left", "left", "right"}), [&](Swarm& swarm) {
      until_moved(swarm, moment);
      swarm.cluster().network().cut(swarm.node(1, 0), swarm.node(1, 1));
    });
  }
}

// It hears of the seal when the others have met.
TEST_P(FabricSums, AMemberHearsOfTheSealLast) {
  for (const std::size_t late : {0U, 1U}) {
    SimClusterOptions options = options_for(run_on(3));
    gpus_of({"left", "left", "right"})(options);
    Swarm swarm(std::move(options));
    swarm.until_started();
    const SimNodeId node = swarm.node(1, late);
    bool held = false;
    swarm.rule([&](SimNodeId from, SimNodeId to, const Frame& frame) {
      if (held || from != kCoordinatorNode || to != node || kind_of(frame) != MessageKind::kSeal)
        return FrameFate{};
      held = true;
      return FrameFate{.kind = FrameFate::Kind::kHold, .delay = {}};
    });
    ASSERT_TRUE(swarm.until([&] { return held; }));
    swarm.cluster().runtime().run_for(1s);
    swarm.release(kCoordinatorNode, node);
    expect_reference(swarm, run_on(3));
  }
}

// Another coordinator leads while they sum: members meet anew.
TEST_P(FabricSums, ACoordinatorIsLost) {
  for (std::uint64_t moment = 1; moment <= 5; moment += 2) {
    twice(run_on(3), gpus_of({"left", "left", "right"}), [&](Swarm& swarm) {
      until_moved(swarm, moment);
      swarm.cluster().kill_coordinator();
      swarm.cluster().runtime().run_for(1s);
      swarm.cluster().restart_coordinator();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Delay, FabricSums, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
