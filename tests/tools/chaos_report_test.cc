#include "tools/chaos/chaos_report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/golden/golden.h"

namespace swarmline {
namespace {

constexpr double kStart = 1000;

JsonValue line(const std::string& json) {
  auto value = parse_json(json);
  EXPECT_TRUE(value) << json;
  return value.value_or(JsonValue{});
}
JsonValue step(std::uint64_t number, double wall) {
  return line(fmt::format(R"({{"kind":"step","step":{},"wall_seconds":{}}})", number, wall));
}
JsonValue event(const std::string& kind, const std::string& detail, double wall) {
  return line(
      fmt::format(R"({{"kind":"{}","detail":"{}","wall_seconds":{}}})", kind, detail, wall));
}

// Two stages of two peers, ten microbatches a second each, twenty a step: a step a second. One
// peer is killed at 3.5 s; 4 s later it is back. Steps take two seconds meanwhile, and half a
// second more for what was lost.
ChaosResult example(std::vector<JsonValue>& lines) {
  ChaosResult result;
  result.name = "example";
  result.run = "runs/example";
  result.finished = true;
  result.end = "finished 12 steps";
  result.stages = 2;
  result.microbatches = 20;
  for (int i = 1; i <= 4; ++i)
    result.speeds.push_back({.at = kStart - 1, .process = fmt::format("peer-{}", i), .speed = 10});
  result.speeds.push_back({.at = kStart + 3.5, .process = "peer-3", .speed = 0});
  result.speeds.push_back({.at = kStart + 7.5, .process = "peer-3", .speed = 10});
  ChaosDone killed;
  killed.name = "one";
  killed.what = "restart peer-3 (stage 1), averaging step 3";
  killed.peers = {3};
  killed.at = kStart + 3.5;
  ChaosDone never;
  never.name = "two";
  never.what = "kill stage 1";
  result.faults = {killed, never};
  result.unplanned = {"peer-2 ended with code 1"};
  double wall = kStart;
  for (std::uint64_t i = 0; i < 12; ++i) {
    lines.push_back(step(i, wall));
    if (i == 3) {
      lines.push_back(event("peer_joined", "peer 3 (stage 1, incarnation 2) at x", wall + 0.6));
      lines.push_back(event("peer_lost", "peer 33 (stage 1, incarnation 1): y", wall + 0.65));
      lines.push_back(event("peer_lost", "peer 3 (stage 1, incarnation 1): y", wall + 0.75));
    }
    wall += i == 3 ? 2.5 : i == 4 || i == 5 ? 2 : 1;
  }
  result.comparison = {.verdict = ChaosVerdict::kEqual,
                       .sentence = "at most 1e-15 apart",
                       .max_rel_to_peak = 1e-15,
                       .allowed = 1e-9};
  return result;
}

TEST(ChaosReportTest, TimesAndThroughputAreReadFromTheLog) {
  std::vector<JsonValue> lines;
  ChaosResult result = example(lines);
  read_log(result, lines);
  EXPECT_EQ(result.steps, 12U);
  EXPECT_EQ(result.steps_again, 0U);
  const ChaosDone& killed = result.faults[0];
  EXPECT_NEAR(killed.noticed.value_or(0), 0.25, 1e-9) << "the first event that names peer 3";
  EXPECT_NEAR(killed.committed.value_or(0), 2, 1e-9);
  EXPECT_NEAR(killed.recovered.value_or(0), 6, 1e-9) << "the commit after the last slow step";
  // 11 steps in 14.5 s: 220 of 3.5 s x 20 + 4 s x 10 + 7 s x 20 = 250.
  EXPECT_NEAR(result.seconds, 14.5, 1e-9);
  EXPECT_NEAR(result.share.value_or(0), 220.0 / 250, 1e-9);
  EXPECT_NEAR(result.undisturbed.value_or(0), 1, 1e-9) << "three steps of a second";
  EXPECT_NEAR(result.left().value_or(0), 220.0 / 250, 1e-9);
  EXPECT_FALSE(result.faults[1].noticed);
  EXPECT_FALSE(result.all_done());
  EXPECT_FALSE(result.good());
  result.faults.pop_back();
  EXPECT_TRUE(result.good());
  result.comparison.verdict = ChaosVerdict::kDiffers;
  EXPECT_FALSE(result.good());
}

TEST(ChaosReportTest, AStepThatIsCommittedAgainIsNoThroughput) {
  std::vector<JsonValue> lines;
  ChaosResult result = example(lines);
  const double once = [&] {
    ChaosResult copy = result;
    read_log(copy, lines);
    return copy.share.value_or(0);
  }();
  lines.insert(lines.begin() + 3, step(1, kStart + 2.5));
  read_log(result, lines);
  EXPECT_EQ(result.steps, 12U);
  EXPECT_EQ(result.steps_again, 1U);
  EXPECT_EQ(result.share.value_or(0), once);
}

TEST(ChaosReportTest, WithoutSpeedsStepsBeforeTheFirstFaultSayWhatIsUsual) {
  std::vector<JsonValue> lines;
  ChaosResult result = example(lines);
  result.speeds.clear();
  read_log(result, lines);
  EXPECT_FALSE(result.share);
  EXPECT_NEAR(result.faults[0].recovered.value_or(0), 6, 1e-9);
}

TEST(ChaosReportTest, TextAndJsonAreAsTheyWere) {
  std::vector<JsonValue> lines;
  ChaosResult result = example(lines);
  read_log(result, lines);
  expect_golden("chaos/chaos.txt", chaos_text(result));
  expect_golden("chaos/chaos.json", chaos_json(result));
}

}  // namespace
}  // namespace swarmline
