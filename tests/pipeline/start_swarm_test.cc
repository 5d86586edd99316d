// Before the start of a run: whoever can't serve is refused with its reason, and the run waits for
// others.
#include <algorithm>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "pipeline/protocol/knobs.h"
#include "sim/cluster/fake_stage_model.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/swarm_harness.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr Duration kWaits = 60s;

// The first stage that is built can't be.
MakeModel without_a_device() {
  return [failed = std::make_shared<bool>(false)](const ModelSpec& spec, const StageSpec& stage,
                                                  const StageModelOptions& how) {
    if (!std::exchange(*failed, true))
      return Result<std::unique_ptr<StageModel>>(
          fail(ErrorCode::kUserMistake, "this machine has no cuda:7"));
    return make_fake_model(spec, stage, how);
  };
}

// The first peer of the stage says that it begins with other bits.
void lie(Swarm& swarm, std::uint16_t stage) {
  swarm.rule([stage, liar = std::optional<Seat>()](SimNodeId, SimNodeId,
                                                   const Frame& frame) mutable -> FrameFate {
    if (kind_of(frame) != MessageKind::kReady) return {};
    auto ready = *parse<wire::Ready>(frame);
    const Seat seat = from_wire(ready.seat());
    if (seat.stage.value != stage || (liar && *liar != seat)) return {};
    liar = seat;
    ready.set_state_digest(ready.state_digest() ^ 1);
    const_cast<Frame&>(frame).meta = ready.SerializeAsString();
    return {};
  });
}

// Peers that ended with that code.
std::vector<std::size_t> ended_with(SimCluster& cluster, int code) {
  std::vector<std::size_t> ended;
  for (std::size_t i = 0; i < cluster.peers(); ++i)
    if (cluster.outcome_of(i) && cluster.outcome_of(i)->exit_code == code) ended.push_back(i);
  return ended;
}

void expect_that_it_waits(Swarm& swarm) {
  swarm.cluster().runtime().run_for(kWaits);
  EXPECT_FALSE(swarm.cluster().outcome().has_value()) << history(swarm);
  EXPECT_EQ(events(swarm, "start"), 0U);
}

void expect_that_it_ends(Swarm& swarm, const RunConfig& config) {
  swarm.finish();
  expect_equal(swarm.cluster().parameters(), one_each(config));
}

TEST(Start, WhoCannotBuildItsStageIsRefusedAndTheRunWaits) {
  const RunConfig config = small_run({1, 1}, 0);
  Swarm swarm(swarm_of(config, without_a_device()));
  ASSERT_TRUE(swarm.until([&] { return !ended_with(swarm.cluster(), 3).empty(); }));
  const std::size_t refused = ended_with(swarm.cluster(), 3).front();
  EXPECT_EQ(swarm.cluster().outcome_of(refused)->sentence, "this machine has no cuda:7");
  EXPECT_EQ(events(swarm, "peer_failed", "this machine has no cuda:7"), 1U) << history(swarm);
  expect_that_it_waits(swarm);
  swarm.cluster().add_peer({});
  expect_that_it_ends(swarm, config);
}

TEST(Start, OneThatIsInterruptedOrLeavesIsNotWaitedFor) {
  const RunConfig config = small_run({1, 2}, 0);
  SimClusterOptions options = swarm_of(config, make_fake_model);
  options.peers = {{}, {}, {.control = 3s}};
  Swarm swarm(std::move(options));
  ASSERT_TRUE(swarm.until_delivered(MessageKind::kReady, 2));
  swarm.cluster().peer(0).request_stop();
  const MarkExpected left("reign.left_before_the_start");
  swarm.cluster().peer(1).request_drain(60s);
  ASSERT_TRUE(swarm.until([&] { return swarm.cluster().ended() == 2; }, knobs().goodbye_time + 1s))
      << "nothing that it holds is needed";
  EXPECT_EQ(ended_with(swarm.cluster(), 130), std::vector<std::size_t>{0});
  EXPECT_EQ(ended_with(swarm.cluster(), 0), std::vector<std::size_t>{1});
  expect_that_it_waits(swarm);
  swarm.cluster().add_peer({});
  swarm.cluster().add_peer({});
  expect_that_it_ends(swarm, config);
}

// [The first to say what it begins with says something else: all honest ones would go.]
TEST(Start, MostDecideWithWhichBitsAStageBegins) {
  const RunConfig config = small_run({1, 3}, 0);
  Swarm swarm(swarm_of(config, make_fake_model));
  lie(swarm, 1);
  const MarkExpected minority("first_bits.minority");
  ASSERT_TRUE(swarm.until([&] { return !ended_with(swarm.cluster(), 3).empty(); }));
  EXPECT_EQ(events(swarm, "peer_refused", "it begins with other parameters of stage 1"), 1U)
      << history(swarm);
  expect_that_it_waits(swarm);
  EXPECT_EQ(swarm.cluster().ended(), 1U) << "honest mates stay";
  swarm.cluster().add_peer({});
  expect_that_it_ends(swarm, config);
}

// Of two nobody knows; the next one goes there, though another stage lacks a peer, too.
TEST(Start, ATieIsDecidedByTheNextThatComes) {
  const RunConfig config = small_run({2, 2}, 0);
  Swarm swarm(swarm_of(config, make_fake_model));
  lie(swarm, 1);
  const MarkExpected doubt("first_bits.in_doubt");
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "in_doubt") == 1; })) << history(swarm);
  expect_that_it_waits(swarm);
  EXPECT_EQ(swarm.cluster().ended(), 0U);
  swarm.cluster().add_peer({});
  expect_that_it_ends(swarm, config);
  EXPECT_EQ(events(swarm, "peer_refused"), 1U) << history(swarm);
  EXPECT_EQ(events(swarm, "in_doubt"), 1U);
  EXPECT_EQ(ended_with(swarm.cluster(), 3).size(), 1U);
}

// One more than is wanted can't hold the run up.
TEST(Start, WhoeverDiffersFromTheFirstGoesWhereTheStageHasEnough) {
  const RunConfig config = small_run(std::vector<std::uint32_t>{1}, 0);
  Swarm swarm(swarm_of(config, make_fake_model));
  lie(swarm, 0);
  swarm.cluster().add_peer({});
  const MarkExpected first("first_bits.first_counts");
  swarm.finish();
  EXPECT_EQ(events(swarm, "peer_refused"), 1U) << history(swarm);
}

// ---- The run's data -----------------------------------------------------------------------------

std::shared_ptr<const DataManifest> some_data() {
  const std::string hash(64, '0');
  return std::make_shared<DataManifest>(DataManifest{
      .folder = "corpus", .files = {{.name = "a", .bytes = 8, .used = 8, .sha256 = hash}}});
}

TEST(Start, WhoLacksTheDataServesAStageThatReadsNoneAndWhoHasOtherIsRefused) {
  const RunConfig config = small_run({2, 2}, 0);
  SimClusterOptions options = swarm_of(config, make_fake_model);
  options.data = some_data();
  options.peers = {{.lacks_data = "there is no file \"corpus/a\""},
                   {},
                   {.differs_in_data = "a has another content"},
                   {.lacks_data = "there is no file \"corpus/a\""}};
  Swarm swarm(std::move(options));
  swarm.cluster().add_peer({});
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "start") == 1; }));
  for (const std::size_t without : {0U, 3U})
    EXPECT_EQ(swarm.cluster().seat_of(without).stage, StageId{1});
  ASSERT_TRUE(swarm.until([&] { return !ended_with(swarm.cluster(), 3).empty(); }));
  EXPECT_EQ(ended_with(swarm.cluster(), 3), std::vector<std::size_t>{2});
  EXPECT_EQ(events(swarm, "peer_refused", "a has another content"), 1U) << history(swarm);
  expect_that_it_ends(swarm, config);
}

// Both that have the data sat down elsewhere, and those without came later.
TEST(Start, WhoHasTheDataMakesRoomForThoseWhoLackIt) {
  const RunConfig config = small_run({2, 2}, 0);
  SimClusterOptions options = swarm_of(config, make_fake_model);
  options.data = some_data();
  options.peers = {{}, {}, {.lacks_data = "none"}, {.lacks_data = "none"}};
  Swarm swarm(std::move(options));
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "start") == 1; }));
  for (const std::size_t without : {2U, 3U})
    EXPECT_EQ(swarm.cluster().seat_of(without).stage, StageId{1});
  expect_that_it_ends(swarm, config);
}

// [The stage that reads the data is lost: nobody who is left could serve it.]
TEST(Start, AnEraWaitsForSomebodyWhoHasTheData) {
  RunConfig config = small_run({1, 2}, 0);
  config.run.steps = 8;
  config.net.peers_wait_seconds = 60;
  SimClusterOptions options = swarm_of(config, make_fake_model);
  options.data = some_data();
  options.peers = {{}, {.lacks_data = "none"}, {.lacks_data = "none"}};
  Swarm swarm(std::move(options));
  swarm.until_committed(2);
  swarm.kill_stage(0);
  swarm.cluster().runtime().run_for(20s);
  EXPECT_FALSE(swarm.cluster().outcome().has_value()) << history(swarm);
  EXPECT_EQ(events(swarm, "start"), 1U) << history(swarm);
  swarm.cluster().add_peer({});
  expect_that_it_ends(swarm, config);
}

}  // namespace
}  // namespace swarmline
