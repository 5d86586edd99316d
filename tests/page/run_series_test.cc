// What a page keeps of a run over time.
#include "node/page/run_series.h"

#include <gtest/gtest.h>

#include "engine/store/json_value.h"
#include "engine/store/log_lines.h"
#include "node/page/log_tail.h"
#include "tests/golden/golden.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

LogEntry step(std::uint64_t number, double loss) {
  return LoggedStep{.step = number,
                    .loss = loss,
                    .tokens = 100,
                    .seconds = 0.5,
                    .wall_seconds = 1000 + 0.5 * static_cast<double>(number),
                    .boundary_bytes = 10};
}

TEST(LogReader, ReadsWhatIsWritten) {
  RunSeries series;
  std::string lines = read_golden("log/log.jsonl");
  std::size_t read = 0;
  for (std::size_t end = lines.find('\n'); end != lines.npos; end = lines.find('\n')) {
    const auto entry = read_log_line(std::string_view(lines).substr(0, end));
    ASSERT_TRUE(entry) << lines.substr(0, end);
    series.add(*entry);
    ++read;
    lines.erase(0, end + 1);
  }
  EXPECT_GE(read, 4U);
  ASSERT_FALSE(series.points().empty());
  ASSERT_FALSE(series.evals().empty());
  ASSERT_FALSE(series.events().empty());
  expect_golden("page/steps.json", steps_json(series, 0) + "\n");
  expect_golden("page/events.json", events_json(series) + "\n");
}

TEST(LogReader, TakesNothingElse) {
  for (const char* line : {"", "{", "[]", "{}", R"({"format":3,"kind":"step"})", "step"})
    EXPECT_FALSE(read_log_line(line)) << line;
  const auto entry = read_log_line(R"({"format":1,"kind":"eval","version":3,"loss":null})");
  ASSERT_TRUE(entry);
  EXPECT_TRUE(std::holds_alternative<LoggedEvent>(*entry)) << "its loss was not finite";
}

TEST(RunSeries, CountsAStepOnceThatIsCommittedAgain) {
  RunSeries series;
  for (std::uint64_t i = 0; i < 10; ++i) series.add(step(i, 5));
  series.add(LoggedEval{.version = 10, .loss = 5, .wall_seconds = 1});
  for (std::uint64_t i = 4; i < 6; ++i) series.add(step(i, 3));
  series.add(LoggedEval{.version = 6, .loss = 3, .wall_seconds = 2});
  ASSERT_EQ(series.points().size(), 6U);
  EXPECT_EQ(series.points().back().step, 6U);
  EXPECT_EQ(series.points().back().loss, 3);
  ASSERT_EQ(series.evals().size(), 1U);
  EXPECT_EQ(series.evals().front().step, 6U);
}

TEST(RunSeries, KeepsSumsAndMeansOfManySteps) {
  RunSeries series;
  constexpr std::uint64_t kSteps = 100'000;
  for (std::uint64_t i = 0; i < kSteps; ++i) series.add(step(i, i % 2 == 0 ? 1 : 3));
  EXPECT_LE(series.points().size(), RunSeries::kPointsMax);
  EXPECT_GT(series.points().size(), RunSeries::kPointsMax / 2);
  std::uint64_t steps = 0, tokens = 0, bytes = 0, last = 0;
  double seconds = 0, loss = 0;
  for (const RunSeries::Point& point : series.points()) {
    EXPECT_GT(point.step, last);
    EXPECT_EQ(point.step, last + point.steps) << "no step is missing";
    last = point.step;
    steps += point.steps;
    tokens += point.tokens;
    bytes += point.boundary_bytes;
    seconds += point.seconds;
    loss += *point.loss * static_cast<double>(point.steps);
  }
  EXPECT_EQ(steps, kSteps);
  EXPECT_EQ(tokens, 100 * kSteps);
  EXPECT_EQ(bytes, 10 * kSteps);
  EXPECT_NEAR(seconds, 0.5 * kSteps, 1e-6);
  EXPECT_NEAR(loss / kSteps, 2, 1e-9);
  EXPECT_EQ(series.points().back().steps, 1U) << "the newest are whole";
}

TEST(RunSeries, GoesBackIntoAPointOfManySteps) {
  RunSeries series;
  for (std::uint64_t i = 0; i < RunSeries::kPointsMax + 1; ++i) series.add(step(i, 1));
  ASSERT_EQ(series.points().front().steps, 2U);
  series.add(step(3, 2));  // the second of the second pair
  ASSERT_EQ(series.points().size(), 3U);
  EXPECT_EQ(series.points()[1].step, 3U);
  EXPECT_EQ(series.points()[1].steps, 1U);
  EXPECT_EQ(series.points()[2].step, 4U);
}

TEST(RunSeries, PutsWhatWasBeforeInFront) {
  RunSeries before, now;
  for (std::uint64_t i = 0; i < 5; ++i) before.add(step(i, 1));
  before.add(LoggedEvent{.kind = "peer_lost", .detail = "peer 1", .wall_seconds = 10});
  now.add(step(4, 9));  // it was in both
  now.add(step(5, 9));
  now.add(LoggedEvent{.kind = "peer_lost", .detail = "peer 1", .wall_seconds = 10});
  now.add(LoggedEvent{.kind = "peer_lost", .detail = "peer 2", .wall_seconds = 20});
  before.append(now);
  ASSERT_EQ(before.points().size(), 6U);
  EXPECT_EQ(before.points()[3].loss, 1);
  EXPECT_EQ(before.points()[4].loss, 9);
  ASSERT_EQ(before.events().size(), 2U);
  EXPECT_EQ(before.events_by_kind().at("peer_lost"), 2U);
}

TEST(RunSeries, BoundsEventsAndTheirKinds) {
  RunSeries series;
  for (int i = 0; i < 1000; ++i)
    series.add(LoggedEvent{.kind = "kind_" + std::to_string(i),
                           .detail = std::string(5000, 'x') + "\x1b[31m",
                           .wall_seconds = static_cast<double>(i)});
  EXPECT_EQ(series.events().size(), RunSeries::kEventsMax);
  EXPECT_LE(series.events_by_kind().size(), RunSeries::kKindsMax + 1);
  EXPECT_LE(series.events().back().detail.size(), 1000U);
  std::uint64_t all = 0;
  for (const auto& [kind, count] : series.events_by_kind()) all += count;
  EXPECT_EQ(all, 1000U);
}

TEST(RunSeries, IsToldInParts) {
  RunSeries series;
  for (std::uint64_t i = 0; i < 2500; ++i) series.add(step(i, 1));
  std::uint64_t from = 0, told = 0;
  int parts = 0;
  for (bool more = true; more; ++parts) {
    const auto part = parse_json(steps_json(series, from));
    ASSERT_TRUE(part);
    told += (*part)["steps"].items.size();
    more = (*part)["next"].is_number();
    from = (*part)["next"].count();
  }
  EXPECT_EQ(told, 2500U);
  EXPECT_EQ(parts, 3);
}

TEST(LogTail, ReadsWholeLinesAsTheyCome) {
  const TempFolder folder;
  const std::string path = folder.at("log.jsonl");
  LogTail tail(path);
  std::vector<std::string> lines;
  const auto take = [&](std::string_view line) { lines.emplace_back(line); };
  EXPECT_FALSE(tail.read(take));
  std::ofstream(path) << "one\ntwo\nthr";
  ASSERT_TRUE(tail.read(take));
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "two"}));
  std::ofstream(path, std::ios::app) << "ee\n";
  EXPECT_EQ(tail.read(take), true);
  EXPECT_EQ(tail.read(take), true);
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "two", "three"}));
  std::ofstream(path) << "new\n";  // another run in its place
  EXPECT_EQ(tail.read(take), false);
  EXPECT_EQ(lines.back(), "new");
}

}  // namespace
}  // namespace swarmline
