// A run's history is read from its log, and drawn.
#include "tools/history/run_history.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <gtest/gtest.h>

#include "engine/store/log_lines.h"
#include "tests/store/temp_folder.h"
#include "tools/history/run_plot.h"

namespace swarmline {
namespace {

std::string step_line(std::uint64_t step, double loss, std::uint32_t of_peer_1 = 3,
                      std::uint32_t of_peer_2 = 1) {
  StepLogLine line;
  line.step = step;
  line.version = step + 1;
  line.loss = loss;
  line.tokens = 100;
  line.seconds = 0.5;
  line.wall_seconds = 1000 + 0.5 * static_cast<double>(step);
  line.peers = {{PeerId{1}, StageId{0}, of_peer_1, 0.1, "gpu-box"},
                {PeerId{2}, StageId{0}, of_peer_2, 0.1},
                {PeerId{3}, StageId{1}, 4, 0.1}};
  line.boundaries = {{StageId{0}, 10, 20, "h8", "h8", 0, 0}};
  return to_json_line(line) + "\n";
}
std::string eval_line(std::uint64_t version, double loss) {
  EvalLogLine line;
  line.version = version;
  line.loss = loss;
  return to_json_line(line) + "\n";
}

class History : public ::testing::Test {
 protected:
  RunHistory read(const std::string& text) {
    const auto history = read_history(folder.write("log.jsonl", text));
    EXPECT_TRUE(history.has_value()) << history.error().what;
    return history.value_or(RunHistory());
  }
  TempFolder folder;
};

TEST_F(History, StepsAndEvaluationsStandInOrder) {
  const RunHistory history =
      read(step_line(0, 5) + eval_line(1, 4.5) + step_line(1, 4) + step_line(2, 3));
  ASSERT_EQ(history.steps.size(), 3U);
  EXPECT_EQ(history.steps[2].step, 2U);
  EXPECT_EQ(history.steps[2].loss, 3);
  EXPECT_EQ(history.steps[2].boundary_bytes, 30U);
  EXPECT_EQ(history.steps[2].peers.size(), 3U);
  ASSERT_EQ(history.evals.size(), 1U);
  EXPECT_EQ(history.unread_lines, 0U);
}

TEST_F(History, WhatWasCommittedBeforeAReturnToACheckpointIsOver) {
  const RunHistory history = read(step_line(0, 5) + step_line(1, 4) + eval_line(2, 4.1) +
                                  step_line(2, 3) + step_line(1, 4.25) + eval_line(2, 4.2));
  ASSERT_EQ(history.steps.size(), 2U);
  EXPECT_EQ(history.steps[1].loss, 4.25);
  ASSERT_EQ(history.evals.size(), 1U);
  EXPECT_EQ(history.evals[0].loss, 4.2);
}

TEST_F(History, ATornLineAndAnotherProgramsAreLeftOutAndCounted) {
  const RunHistory history =
      read(step_line(0, 5) + "{\"format\":9}\n" + "nonsense\n" + step_line(1, 4).substr(0, 40));
  EXPECT_EQ(history.steps.size(), 1U);
  EXPECT_EQ(history.unread_lines, 3U);
  EXPECT_EQ(read_history(folder.at("none")).error().code, ErrorCode::kNotFound);
}

// Lines of the first format counted steps from 0 on.
TEST_F(History, AnOldLogIsReadAsItWasMeant) {
  const RunHistory history =
      read("{\"format\":1,\"kind\":\"step\",\"step\":0,\"loss\":5}\n" + step_line(1, 4));
  ASSERT_EQ(history.steps.size(), 2U);
  EXPECT_EQ(history.steps[0].step, 0U);
  EXPECT_EQ(history.steps[1].step, 1U);
  EXPECT_EQ(history.unread_lines, 0U);
}

TEST_F(History, ALossThatIsNotFiniteIsNone) {
  const RunHistory history = read(step_line(0, std::numeric_limits<double>::quiet_NaN()));
  ASSERT_EQ(history.steps.size(), 1U);
  EXPECT_FALSE(history.steps[0].loss);
}

TEST_F(History, ARowOfTheTableIsAStep) {
  const std::string csv = to_csv(read(step_line(0, 5) + eval_line(1, 4.5) + step_line(1, 4)));
  EXPECT_EQ(std::ranges::count(csv, '\n'), 3);
  EXPECT_TRUE(csv.starts_with("step,wall_seconds,loss,held_out_loss,tokens,seconds,"));
  EXPECT_TRUE(csv.contains("\n1,1000.000,5,4.5,100,0.5,200,")) << csv;
  EXPECT_TRUE(csv.contains("\n2,1000.500,4,,100,0.5,200,")) << csv;
}

TEST_F(History, ManyStepsAreDrawnAsMeans) {
  std::string text;
  for (std::uint64_t step = 0; step < 1000; ++step) text += step_line(step, step % 2 == 0 ? 2 : 4);
  const std::vector<NamedHistory> runs = {{.name = "a", .history = read(text)}};
  const LinePlot loss = plot_loss(runs, PlotAxis::kSteps);
  ASSERT_EQ(loss.lines.size(), 1U);
  EXPECT_EQ(loss.lines[0].points.size(), 250U);
  EXPECT_EQ(loss.lines[0].points[0], (std::pair(4.0, 3.0)));
  EXPECT_EQ(loss.lines[0].points.back().first, 1000);
  const LinePlot speed = plot_throughput(runs, PlotAxis::kMinutes);
  EXPECT_EQ(speed.lines[0].points[0], (std::pair(2.0 / 60, 200.0)));
  EXPECT_EQ(plot_loss(runs, PlotAxis::kTokens).lines[0].points[0].first, 400);
}

TEST_F(History, HeldOutLossStandsWhereItsVersionWasMade) {
  const std::vector<NamedHistory> runs = {
      {.name = "a", .history = read(step_line(0, 5) + step_line(1, 4) + eval_line(2, 4.5))}};
  const LinePlot plot = plot_loss(runs, PlotAxis::kTokens);
  ASSERT_EQ(plot.lines.size(), 2U);
  EXPECT_TRUE(plot.lines[1].dashed);
  EXPECT_EQ(plot.lines[1].points, (std::vector{std::pair(200.0, 4.5)}));
}

TEST_F(History, SharesAreOfTheStagesContributions) {
  const NamedHistory run{.name = "a", .history = read(step_line(0, 5) + step_line(1, 4, 0, 4))};
  const LinePlot plot = plot_shares(run, 0, PlotAxis::kSteps);
  ASSERT_EQ(plot.lines.size(), 2U);
  EXPECT_EQ(plot.lines[0].label, "gpu-box");
  EXPECT_EQ(plot.lines[1].label, "peer 2");
  EXPECT_EQ(plot.lines[0].points, (std::vector{std::pair(1.0, 0.75), std::pair(2.0, 0.0)}));
  EXPECT_EQ(plot.lines[1].points, (std::vector{std::pair(1.0, 0.25), std::pair(2.0, 1.0)}));
  EXPECT_TRUE(plot_shares(run, 7, PlotAxis::kSteps).lines.empty());
}

}  // namespace
}  // namespace swarmline
