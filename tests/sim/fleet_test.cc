#include "sim/fleet/fleet.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "sim/fleet/replay.h"
#include "tests/golden/golden.h"

namespace swarmline {
namespace {

std::string path_of(const std::string& name) {
  return std::string(SWARMLINE_SOURCE_DIR) + "/" + name;
}

Fleet parsed(const std::string& text) {
  auto fleet = parse_fleet(text);
  EXPECT_TRUE(fleet) << fleet.error().what;
  return fleet.value_or(Fleet{});
}

const std::string kNodesHead = "# swarmline fleet: 1\n# kind: nodes\n";
const std::string kCountsHead = "# swarmline fleet: 1\n# kind: counts\n";

TEST(FleetTest, NodesComeAndGo) {
  const Fleet fleet =
      parsed(kNodesHead + "0 add a\n0 add b\n# a note\n\n7.5 remove a\n7.5 add c\n");
  ASSERT_EQ(fleet.events.size(), 2U);
  EXPECT_TRUE(fleet.names_nodes);
  EXPECT_EQ(fleet.events[0].added, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(fleet.events[1].seconds, 7.5);
  EXPECT_EQ(fleet.events[1].removed, (std::vector<std::uint32_t>{0}));
  EXPECT_EQ(fleet.events[1].added, (std::vector<std::uint32_t>{2}));
  EXPECT_EQ(fleet.events[1].count, 2U);
  EXPECT_EQ(fleet.seconds, 7.5);
  EXPECT_EQ(fleet.peak(), 2U);
}

TEST(FleetTest, WhoComesAndGoesInOneInstantWasNeverThere) {
  const Fleet fleet =
      parsed(kNodesHead + "# seconds: 9\n0 add a\n5 add b\n5 remove b\n6 remove a\n6 add a\n");
  ASSERT_EQ(fleet.events.size(), 3U);
  EXPECT_TRUE(fleet.events[1].added.empty());
  EXPECT_TRUE(fleet.events[1].removed.empty());
  EXPECT_EQ(fleet.events[1].count, 1U);
  EXPECT_EQ(fleet.events[2].count, 1U);
  EXPECT_EQ(replay_fleet(fleet, {.stages = 1}).joins, 2U);  // a machine that returns is a new one
}

TEST(FleetTest, Counts) {
  const Fleet fleet = parsed(kCountsHead + "# seconds: 90\n0 4\n60 4\n70 2\n");
  ASSERT_EQ(fleet.events.size(), 2U);
  EXPECT_FALSE(fleet.names_nodes);
  EXPECT_EQ(fleet.events[1].count, 2U);
  EXPECT_EQ(fleet.seconds, 90);
}

TEST(FleetTest, TracesOfBothFormats) {
  const auto nodes = fleet_from_trace("0,add,node1\n0,add,node2\n1500,remove,node1\n");
  ASSERT_TRUE(nodes) << nodes.error().what;
  EXPECT_TRUE(nodes->names_nodes);
  EXPECT_EQ(nodes->events.back().seconds, 1.5);
  // Over midnight; a clock that steps back stands still.
  const auto counts = fleet_from_trace(
      "2023-12-31, 23:59:00, 5\n2023-12-31, 23:58:00, 4\n2024-01-01, 00:01:00, 3\n"
      "2024-03-01, 00:01:00, 3\n");
  ASSERT_TRUE(counts) << counts.error().what;
  ASSERT_EQ(counts->events.size(), 2U);
  EXPECT_EQ(counts->events[0].count, 4U);
  EXPECT_EQ(counts->events[1].seconds, 120);
  EXPECT_EQ(counts->seconds, 120 + 60 * 86400);  // 2024 has a 29th of February
}

TEST(FleetTest, TheFormatIsTheGoldenOneAndReadsBack) {
  auto nodes = fleet_from_trace("0,add,x\n0,add,y\n90500,remove,x\n90500,add,z\n");
  auto counts = fleet_from_trace("2021-12-10, 13:07:45, 80\n2021-12-10, 13:09:45, 70\n");
  ASSERT_TRUE(nodes && counts);
  for (Fleet* fleet : {&*nodes, &*counts}) {
    fleet->name = "small";
    fleet->source = "this test";
    fleet->licence = "MIT";
    EXPECT_EQ(parsed(fleet_text(*fleet)), *fleet);
  }
  expect_golden("fleet/nodes.fleet", fleet_text(*nodes));
  expect_golden("fleet/counts.fleet", fleet_text(*counts));
}

TEST(FleetTest, BadLinesAreNamed) {
  const auto expect_error = [](const std::string& text, const std::string& words,
                               ErrorCode code = ErrorCode::kCorrupt) {
    const auto fleet = parse_fleet(text);
    ASSERT_FALSE(fleet) << text;
    EXPECT_EQ(fleet.error().code, code);
    EXPECT_NE(fleet.error().what.find(words), std::string::npos) << fleet.error().what;
  };
  expect_error("0 add a\n", "not a fleet file");
  expect_error("# swarmline fleet: 2\n", "format 2", ErrorCode::kIncompatible);
  expect_error("# swarmline fleet: 1\n0 4\n", "# kind: nodes");
  expect_error(kNodesHead + "0 add a\n1 join b\n", "line 4: expected SECONDS add|remove NAME");
  expect_error(kNodesHead + "0 add\n", "line 3");
  expect_error(kNodesHead + "0 add a\n0 add a\n", "\"a\" not to be there already");
  expect_error(kNodesHead + "0 remove a\n", "\"a\" to be there");
  expect_error(kNodesHead + "5 add a\n4 add b\n", "time not to go back");
  expect_error(kCountsHead + "0 -1\n", "SECONDS COUNT");
  expect_error(kCountsHead + "nan 1\n", "line 3");
  expect_error(kCountsHead + "inf 1\n", "line 3");
  expect_error(kCountsHead + "-1 1\n", "line 3");
  expect_error(kCountsHead + "0 100001\n", "fewer machines");
  expect_error(kCountsHead + "# seconds: 5\n6 1\n", "at least 6");
  expect_error(kCountsHead + "3.2e8 1\n", "ten years");
  expect_error(kCountsHead + "# seconds: 1e99\n6 1\n", "ten years");
  EXPECT_NE(fleet_from_node_csv("0,add\n").error().what.find("line 1"), std::string::npos);
  EXPECT_NE(fleet_from_count_log("2021-12-10, 13:07, 80\n").error().what.find("line 1"),
            std::string::npos);
  EXPECT_EQ(load_fleet("/nowhere.fleet").error().code, ErrorCode::kNotFound);
}

TEST(FleetTest, AnyBytesAreReadOrRefused) {
  const std::string whole = kNodesHead + "0 add a\n0.5 add b\n1 remove a\n2 add a\n3e1 remove b\n";
  Rng rng(41);
  int read = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text = whole;
    for (std::uint64_t i = 0; i <= rng.below(3); ++i) {
      const std::string_view near = "0123456789. ab#\nadremov-";
      const bool any = rng.below(4) == 0;
      text[rng.below(text.size())] =
          any ? static_cast<char>(rng.below(128)) : near[rng.below(near.size())];
    }
    const auto fleet = parse_fleet(text);
    if (!fleet) continue;
    ++read;
    const auto again = parse_fleet(fleet_text(*fleet));
    ASSERT_TRUE(again) << again.error().what;
    ASSERT_EQ(again->events.size(), fleet->events.size());
    if (fleet->seconds <= 1e6) replay_fleet(*fleet, {.stages = 1});  // years take seconds each
  }
  EXPECT_GT(read, 20);
}

// ---- Replay -------------------------------------------------------------------------------------

ReplayResult replayed(const Fleet& fleet, ReplayPolicy policy, std::uint32_t stages, bool free) {
  ReplayOptions options{.stages = stages, .policy = policy, .period_seconds = 60};
  if (free) options.state_bytes_per_parameter = 0;
  return replay_fleet(fleet, options);
}

TEST(ReplayTest, AFleetThatStaysReachesItsOptimum) {
  const Fleet fleet = parsed(kCountsHead + "# seconds: 7200\n0 80\n");
  for (const auto policy : {ReplayPolicy::kNone, ReplayPolicy::kPaperRule, ReplayPolicy::kSwarmline,
                            ReplayPolicy::kBound}) {
    const ReplayResult result = replayed(fleet, policy, 4, false);
    EXPECT_EQ(result.overall.share(), 1);
    EXPECT_EQ(result.overall.optimal, 20 * 7200);
    EXPECT_EQ(result.first_hour.optimal, 20 * 3600);
    EXPECT_EQ(result.moves, 0U);
  }
}

TEST(ReplayTest, ANewcomerDownloadsBeforeItServes) {
  // 1 -> 2 machines of one stage: the second one has the parameters 32.16 s later.
  const Fleet fleet = parsed(kNodesHead + "# seconds: 200\n0 add a\n100 add b\n");
  const ReplayResult result = replayed(fleet, ReplayPolicy::kSwarmline, 1, false);
  EXPECT_NEAR(result.overall.achieved, 200 + (100 - 32.16) * (1 - ReplayOptions().rest_load), 1e-9);
  EXPECT_EQ(result.overall.optimal, 300);
  EXPECT_NEAR(replayed(fleet, ReplayPolicy::kBound, 1, false).overall.achieved, 200 + 100 - 32.16,
              1e-9);
  EXPECT_EQ(replayed(fleet, ReplayPolicy::kSwarmline, 1, true).overall.share(), 1);
}

// Of what follows the parameters in 128.64 s, over half of the link, 20.84 s are over when the step
// ends: the rest takes half as long over all of it, and nothing is computed meanwhile.
TEST(ReplayTest, ANewcomerThatCantStepYetWaits) {
  const Fleet fleet = parsed(kNodesHead + "# seconds: 400\n0 add a\n180 add b\n");
  ReplayOptions options{.stages = 1};
  const double waits_until = 233 + (128.64 - 20.84) / 2;
  EXPECT_NEAR(replay_fleet(fleet, options).overall.achieved,
              400 + 20.84 * (1 - options.rest_load) + (400 - waits_until), 1e-9);
  options.served_bytes_per_parameter = options.state_bytes_per_parameter;
  EXPECT_NEAR(replay_fleet(fleet, options).overall.achieved, 400 + (400 - 180 - 96.48), 1e-9);
}

// The step ends before the parameters are here: others compute on newer ones.
TEST(ReplayTest, ANewcomerWhoseParametersAreOldServesWhenItHasAll) {
  const Fleet fleet = parsed(kNodesHead + "# seconds: 400\n0 add a\n220 add b\n");
  EXPECT_NEAR(replayed(fleet, ReplayPolicy::kSwarmline, 1, false).overall.achieved,
              400 + (400 - 220 - 96.48), 1e-9);
  EXPECT_NEAR(replayed(fleet, ReplayPolicy::kBound, 1, false).overall.achieved,
              400 + (400 - 220 - 32.16), 1e-9);
}

TEST(ReplayTest, TimeWithFewerMachinesThanStagesIsLeftOut) {
  const Fleet fleet = parsed(kNodesHead + "# seconds: 30\n0 add a\n0 add b\n10 remove a\n");
  const ReplayResult result = replayed(fleet, ReplayPolicy::kSwarmline, 2, false);
  EXPECT_EQ(result.seconds_without_optimum, 20);
  EXPECT_EQ(result.overall.optimal, 10);
  EXPECT_EQ(result.stages_emptied, 1U);
  EXPECT_EQ(result.stages_survived, 0U);
}

TEST(ReplayTest, AShadowOutlivesItsStage) {
  // Stage 1 has one peer of three; a spare of stage 0 follows it from the beginning.
  const Fleet fleet =
      parsed(kNodesHead + "# seconds: 100\n0 add a\n0 add b\n0 add c\n50 remove b\n");
  const ReplayResult result = replayed(fleet, ReplayPolicy::kSwarmline, 2, false);
  EXPECT_EQ(result.stages_emptied, 1U);
  EXPECT_EQ(result.stages_survived, 1U);
  EXPECT_EQ(result.instant_moves, 1U);
  EXPECT_GT(result.overall.share(), 0.95);  // of following
}

TEST(ReplayTest, SameSeedSameResult) {
  const auto fleet = load_fleet(path_of("configs/fleets/gcp-v100.fleet"));
  ASSERT_TRUE(fleet) << fleet.error().what;
  const ReplayResult one = replay_fleet(*fleet, {.stages = 8, .seed = 5});
  const ReplayResult again = replay_fleet(*fleet, {.stages = 8, .seed = 5});
  const ReplayResult other = replay_fleet(*fleet, {.stages = 8, .seed = 6});
  EXPECT_EQ(one.overall.achieved, again.overall.achieved);
  EXPECT_EQ(one.moves, again.moves);
  EXPECT_NE(one.overall.achieved, other.overall.achieved);
}

TEST(ReplayTest, RealFleetsAheadOfThePapersRuleAndUnderTheBound) {
  for (const char* name : {"aws-p3", "gcp-v100"}) {
    const auto fleet = load_fleet(path_of("configs/fleets/" + std::string(name) + ".fleet"));
    ASSERT_TRUE(fleet) << fleet.error().what;
    EXPECT_FALSE(fleet->source.empty());
    EXPECT_EQ(fleet->licence, "MIT");
    for (const std::uint32_t stages : {4U, 8U, 16U}) {
      for (const bool free : {false, true}) {
        SCOPED_TRACE(std::string(name) + " " + std::to_string(stages) + (free ? " free" : ""));
        const double ours =
            replayed(*fleet, ReplayPolicy::kSwarmline, stages, free).overall.share();
        EXPECT_GT(ours, replayed(*fleet, ReplayPolicy::kPaperRule, stages, free).overall.share());
        EXPECT_LE(ours, replayed(*fleet, ReplayPolicy::kBound, stages, free).overall.share());
        if (free) EXPECT_GT(ours, 0.999);
      }
    }
  }
}

// Published: none 82.7, every 300 s 95.8, every 60 s 97.6 % on another fleet; the order must agree.
TEST(ReplayTest, ThePapersRuleBehavesAsPublished) {
  const auto fleet = load_fleet(path_of("configs/fleets/gcp-v100.fleet"));
  ASSERT_TRUE(fleet) << fleet.error().what;
  const auto share = [&](ReplayPolicy policy, double period) {
    ReplayOptions options{.stages = 4, .policy = policy, .period_seconds = period};
    options.state_bytes_per_parameter = 0;
    return replay_fleet(*fleet, options).overall.share();
  };
  const double none = share(ReplayPolicy::kNone, 300);
  const double slow = share(ReplayPolicy::kPaperRule, 300);
  const double fast = share(ReplayPolicy::kPaperRule, 60);
  EXPECT_LT(none, 0.9);
  EXPECT_GT(slow, none);
  EXPECT_GT(fast, slow);
}

}  // namespace
}  // namespace swarmline
