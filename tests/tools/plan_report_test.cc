#include "tools/predict/plan_report.h"

#include <gtest/gtest.h>

#include "engine/store/json_value.h"
#include "tests/golden/golden.h"
#include "tools/predict/plan_of_status.h"

namespace swarmline {
namespace {

PlanQuestion golden_question() {
  auto question = parse_plan_question(read_golden("plan/snapshot.json"));
  EXPECT_TRUE(question) << question.error().what;
  return question.value_or(PlanQuestion{});
}

TEST(PlanSnapshotTest, EveryKeyIsRead) {
  const auto question = parse_plan_question(R"({"format": 1,
    "stages": [{"cost": 2.5, "state_bytes": 7, "memory_bytes": 8}, {}],
    "peers": [{"peer": 9, "stage": 1, "arriving": true, "speed": 3, "link_bits_per_second": 4,
               "memory_bytes": 5, "shadow_memory_bytes": 6, "slow_seconds": 7.5,
               "zone": "a", "host": "h",
               "shadows": [{"stage": 0, "ready": true}, {"stage": 1}]},
              {"peer": 10, "stage": null}],
    "options": {"horizon_seconds": 1, "hysteresis": 2, "redundancy_worth": 2.5, "moves_max": 3,
                "shadows_per_stage": 4, "shadows_per_peer_max": 5, "shadow_load": 6,
                "download_load": 6.5, "shadow_loss_max": 7,
                "fail_slow_share": 8, "fail_slow_seconds": 9, "link_bits_per_second": 10}})");
  ASSERT_TRUE(question) << question.error().what;
  const PlanSnapshot& snapshot = question->snapshot;
  ASSERT_EQ(snapshot.stages.size(), 2U);
  EXPECT_EQ(snapshot.stages[0].cost, 2.5);
  EXPECT_EQ(snapshot.stages[0].state_bytes, 7U);
  EXPECT_EQ(snapshot.stages[0].memory_bytes, 8U);
  EXPECT_EQ(snapshot.stages[1].cost, 1);
  ASSERT_EQ(snapshot.peers.size(), 2U);
  const PlanPeer& peer = snapshot.peers[0];
  EXPECT_EQ(peer.peer, PeerId(9));
  EXPECT_EQ(peer.stage, StageId(1));
  EXPECT_TRUE(peer.arriving);
  EXPECT_EQ(peer.speed, 3);
  EXPECT_EQ(peer.link_bits_per_second, 4);
  EXPECT_EQ(peer.memory_bytes, 5U);
  EXPECT_EQ(peer.shadow_memory_bytes, 6U);
  EXPECT_EQ(peer.slow_seconds, 7.5);
  EXPECT_EQ(peer.at, (Location{.zone = "a", .host = "h"}));
  ASSERT_EQ(peer.shadows.size(), 2U);
  EXPECT_TRUE(peer.shadows[0].ready);
  EXPECT_EQ(peer.shadows[1].stage, StageId(1));
  EXPECT_FALSE(peer.shadows[1].ready);
  EXPECT_EQ(snapshot.peers[1].stage, std::nullopt);
  const PlanOptions& options = question->options;
  EXPECT_EQ(options.horizon_seconds, 1);
  EXPECT_EQ(options.hysteresis, 2);
  EXPECT_EQ(options.redundancy_worth, 2.5);
  EXPECT_EQ(options.moves_max, 3U);
  EXPECT_EQ(options.shadows_per_stage, 4U);
  EXPECT_EQ(options.shadows_per_peer_max, 5U);
  EXPECT_EQ(options.shadow_load, 6);
  EXPECT_EQ(options.download_load, 6.5);
  EXPECT_EQ(options.shadow_loss_max, 7);
  EXPECT_EQ(options.fail_slow_share, 8);
  EXPECT_EQ(options.fail_slow_seconds, 9);
  EXPECT_EQ(options.link_bits_per_second, 10);
}

TEST(PlanSnapshotTest, MistakesNameTheirPlace) {
  const auto expect_mistake = [](const std::string& text, const std::string& words,
                                 ErrorCode code = ErrorCode::kUserMistake) {
    const auto question = parse_plan_question(text);
    ASSERT_FALSE(question) << text;
    EXPECT_EQ(question.error().code, code);
    EXPECT_NE(question.error().what.find(words), std::string::npos) << question.error().what;
  };
  const auto with_peers = [](const std::string& peers) {
    return R"({"format": 1, "stages": [{}, {}], "peers": [)" + peers + "]}";
  };
  expect_mistake("", "");
  expect_mistake("[]", "snapshot: expected an object");
  expect_mistake("{}", "format: expected 1");
  expect_mistake(R"({"format": 2})", "format 2", ErrorCode::kIncompatible);
  expect_mistake(R"({"format": 1})", "stages: expected a list of at least one");
  expect_mistake(R"({"format": 1, "stages": [{"cost": 0}]})", "stages[0].cost: expected a number");
  expect_mistake(R"({"format": 1, "stages": [{"state_bytes": 1.5}]})", "a whole number");
  expect_mistake(R"({"format": 1, "stages": [{}], "option": {}})", "option: there is no such key");
  expect_mistake(R"({"format": 1, "stages": [{}], "options": {"hysteresis": -1}})",
                 "options.hysteresis");
  expect_mistake(with_peers(R"({"stage": 0})"), "peers[0].peer: expected the peer's number");
  expect_mistake(with_peers(R"({"peer": 0})"), "peers[0].peer");
  expect_mistake(with_peers(R"({"peer": 1}, {"peer": 1})"),
                 "peers[1].peer: expected a number that");
  expect_mistake(with_peers(R"({"peer": 1, "stage": 2})"),
                 "peers[0].stage: expected a whole number");
  expect_mistake(with_peers(R"({"peer": 1, "arriving": true})"), "peers[0].arriving");
  expect_mistake(with_peers(R"({"peer": 1, "speed": "fast"})"), "peers[0].speed");
  expect_mistake(with_peers(R"({"peer": 1, "sped": 1})"), "peers[0].sped: there is no such key");
  expect_mistake(with_peers(R"({"peer": 1, "shadows": [{"ready": true}]})"),
                 "peers[0].shadows[0].stage");
}

// Stage 1 has lost everybody; stage 0 has two peers, one of which follows stage 1.
RunStatus run_with_an_empty_stage() {
  RunStatus status{.run = "small", .state = "training", .balance_moves = true, .stages = {}};
  status.balance_shadows = 1;
  PeerStatus stays{.peer = 4, .name = "gpu-box", .state = "ready", .speed = 2};
  PeerStatus goes{.peer = 3, .name = "laptop", .state = "ready", .speed = 1};
  goes.memory_bytes = 5;
  goes.slow_seconds = 6;
  goes.zone = "eu-1";
  goes.host = "10.0.0.3";
  stays.barred = 1;
  const PeerStatus lost{.peer = 5, .name = "gone", .state = "lost"};
  status.stages.push_back({.stage = 0, .cost = 2, .state_bytes = 7, .peers = {stays, goes}});
  status.stages.push_back({.stage = 1, .cost = 1, .state_bytes = 8, .peers = {lost}});
  status.stages[1].shadows = {{.peer = 3, .name = "laptop", .serves = 0, .state = "ready"},
                              {.peer = 9, .name = "?", .serves = 0, .state = "ready"}};
  return status;
}

TEST(PlanOfStatusTest, IsWhatTheRunsBalancerSees) {
  const auto question = parse_status_or_snapshot(to_json(run_with_an_empty_stage()));
  ASSERT_TRUE(question) << question.error().what;
  const PlanSnapshot& snapshot = question->snapshot;
  ASSERT_EQ(snapshot.stages.size(), 2U);
  EXPECT_EQ(snapshot.stages[0].cost, 2);
  EXPECT_EQ(snapshot.stages[1].state_bytes, 8U);
  ASSERT_EQ(snapshot.peers.size(), 2U) << "who is lost is not planned with";
  EXPECT_EQ(snapshot.peers[0].peer, PeerId(3));
  EXPECT_EQ(snapshot.peers[0].memory_bytes, 5U);
  EXPECT_EQ(snapshot.peers[0].slow_seconds, 6);
  EXPECT_EQ(snapshot.peers[0].at, (Location{.zone = "eu-1", .host = "10.0.0.3"}));
  ASSERT_EQ(snapshot.peers[0].shadows.size(), 1U);
  EXPECT_TRUE(snapshot.peers[0].shadows[0].ready);
  EXPECT_EQ(snapshot.peers[1].barred, StageId(1));
  EXPECT_EQ(question->options.shadows_per_stage, 1U);
  EXPECT_EQ(question->options.hysteresis, run_plan_options(true, 1).hysteresis);

  const SwarmPlan plan = plan_swarm(snapshot, question->options);
  const std::string text = plan_text(*question, plan);
  EXPECT_NE(text.find("peer 3 (laptop) stage 0   -> stage 1    at once"), std::string::npos)
      << text;
  EXPECT_EQ(text.find("balance.moves = false"), std::string::npos) << text;
  EXPECT_NE(plan_json(*question, plan).find("\"name\": \"laptop\""), std::string::npos);
}

TEST(PlanOfStatusTest, ARunThatMovesNobodySaysSo) {
  RunStatus status = run_with_an_empty_stage();
  status.balance_moves = false;
  const auto question = plan_question_of(status);
  ASSERT_TRUE(question) << question.error().what;
  const std::string text = plan_text(*question, {});
  EXPECT_NE(text.find("no moves: the run has balance.moves = false"), std::string::npos) << text;
}

TEST(PlanOfStatusTest, WhoMovesIsOnItsWayToTheOtherStage) {
  RunStatus status = run_with_an_empty_stage();
  status.stages[0].peers[0].moves_to = 1;
  status.stages[0].peers[0].arriving = true;
  const auto question = plan_question_of(status);
  ASSERT_TRUE(question) << question.error().what;
  EXPECT_EQ(question->snapshot.peers[1].stage, StageId(1));
  EXPECT_TRUE(question->snapshot.peers[1].arriving);
}

TEST(PlanOfStatusTest, MistakesNameTheirPlace) {
  const auto expect_mistake = [](const std::string& words, auto change) {
    RunStatus status = run_with_an_empty_stage();
    change(status);
    const auto question = plan_question_of(status);
    ASSERT_FALSE(question) << words;
    EXPECT_EQ(question.error().code, ErrorCode::kUserMistake);
    EXPECT_NE(question.error().what.find(words), std::string::npos) << question.error().what;
  };
  expect_mistake("the run small is over (done)", [](RunStatus& run) { run.state = "done"; });
  expect_mistake("stages of the status", [](RunStatus& run) { run.stages.clear(); });
  expect_mistake("stages[1].stage", [](RunStatus& run) { run.stages[1].stage = 3; });
  expect_mistake("stages[0].cost", [](RunStatus& run) { run.stages[0].cost = 0; });
  expect_mistake("peer 0", [](RunStatus& run) { run.stages[0].peers[0].peer = 0; });
  expect_mistake("a number that no other peer has",
                 [](RunStatus& run) { run.stages[0].peers[0].peer = 3; });
  expect_mistake("speed", [](RunStatus& run) { run.stages[0].peers[0].speed = -1; });
  expect_mistake("moves_to", [](RunStatus& run) { run.stages[0].peers[0].moves_to = 2; });
  expect_mistake("barred", [](RunStatus& run) { run.stages[0].peers[0].barred = 0.5; });
  EXPECT_EQ(parse_status_or_snapshot(R"({"run": "x", "format": 2})").error().code,
            ErrorCode::kIncompatible);
}

TEST(PlanReportTest, TextAndJsonAreTheGoldenOnes) {
  const PlanQuestion question = golden_question();
  const SwarmPlan plan = plan_swarm(question.snapshot, question.options);
  expect_golden("plan/plan.txt", plan_text(question, plan));
  const std::string json = plan_json(question, plan);
  expect_golden("plan/plan.json", json);
  const auto read_back = parse_json(json);
  ASSERT_TRUE(read_back) << read_back.error().what;
  EXPECT_EQ((*read_back)["moves"].items.size(), plan.moves.size());
}

TEST(PlanReportTest, ReplayTables) {
  const auto fleet = parse_fleet(
      "# swarmline fleet: 1\n# kind: counts\n# name: small\n# source: this test\n"
      "# seconds: 7200\n0 9\n600 7\n1200 10\n1800 3\n2400 12\n");
  ASSERT_TRUE(fleet) << fleet.error().what;
  const ReplayTable table = replay_table(*fleet, {.stages = {2, 4}, .seeds = 3});
  ASSERT_EQ(table.rows.size(), 10U);
  EXPECT_EQ(table.rows[3].rule, "swarmline");
  EXPECT_EQ(table.rows[8].stages, 4U);
  EXPECT_EQ(table.rows[0].result.seconds, 3 * 7200);
  expect_golden("plan/replay.txt", replay_text(table));
  expect_golden("plan/replay.json", replay_json(table));
  const ReplayTable free = replay_table(*fleet, {.stages = {2}, .seeds = 1, .free = true});
  EXPECT_NE(replay_text(free).find("are free"), std::string::npos);
  EXPECT_EQ(free.rows[3].result.overall.share(), 1);
  const ReplayTable packed =
      replay_table(*fleet, {.stages = {2, 4}, .seeds = 3, .packed_moments = true});
  EXPECT_NE(replay_text(packed).find("6.03 bytes each"), std::string::npos);
  EXPECT_GT(packed.rows[3].result.overall.share(), table.rows[3].result.overall.share());
}

}  // namespace
}  // namespace swarmline
