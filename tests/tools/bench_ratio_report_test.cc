#include "tools/measure/bench_ratio_report.h"

#include <algorithm>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/golden/golden.h"

namespace swarmline {
namespace {

CodecSpec codec_named(const char* name) {
  const auto codec = parse_codec(name);
  EXPECT_TRUE(codec) << name;
  return codec.value_or(CodecSpec{});
}

// A device whose plain product does 100 GFLOP/s and whose stages take 1.25 times as long, plus a
// hundredth of a second for what grows with the hidden size only.
RatioStage stage_of(std::uint32_t hidden, RatioSource source = RatioSource::kMeasured) {
  const double d = hidden, tokens = 512;
  const auto bytes = static_cast<std::uint64_t>(2 * tokens * d);
  RatioStage stage{.shape = {.hidden = hidden, .layers = 1, .sequence = 512},
                   .parameters = 12ULL * hidden * hidden,
                   .flops = 72 * d * d * tokens,
                   .elements = d * tokens,
                   .source = source,
                   .wires = {{.codec = codec_named("fp16"),
                              .codec_seconds = 0.001,
                              .forward_bytes = bytes,
                              .backward_bytes = bytes}}};
  const double seconds = 1.25 * stage.flops / 100e9 + 0.01 * d / 1024;
  stage.forward_seconds = seconds / 3;
  stage.backward_seconds = 2 * seconds / 3;
  if (source == RatioSource::kMeasured) stage.product_flops_per_second = 100e9;
  return stage;
}

RatioReport small_report() {
  return {
      .machine = "A processor",
      .device = "cpu",
      .threads = 2,
      .rounds = 5,
      .wall_seconds = 1750000000,
      .microbatch = 1,
      .chain = {.stages = 4, .in_flight = 8},
      .links = {{500e6, 0}, {500e6, 0.1}, {1e9, 0}, {1e9, 0.1}},
      .stages = {stage_of(768), stage_of(1024), stage_of(2048),
                 stage_of(4096, RatioSource::kNoTime), stage_of(12288, RatioSource::kNoMemory)}};
}

TEST(BenchRatioReport, JsonCsvAndTablesAreTheGoldenOnes) {
  expect_golden("bench/ratio.json", to_json(small_report()));
  expect_golden("bench/ratio.csv", to_csv(small_report()));
  expect_golden("bench/ratio.txt", to_tables(small_report()));
}

TEST(BenchRatioReport, TablesFitATerminal) {
  std::istringstream lines(to_tables(small_report()));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 85U) << line;
}

TEST(BenchRatioReport, EveryCsvRowHasEveryColumn) {
  std::istringstream lines(to_csv(small_report()));
  std::string head;
  std::getline(lines, head);
  int rows = 0;
  for (std::string line; std::getline(lines, line); ++rows)
    EXPECT_EQ(std::ranges::count(line, ','), std::ranges::count(head, ',')) << line;
  EXPECT_EQ(rows, 5 * 4);
}

TEST(BenchRatioReport, FitsWhatWasMeasuredAndNothingElse) {
  const auto fits = ratio_fits(small_report());
  ASSERT_EQ(fits.size(), 1U);
  EXPECT_EQ(fits[0].sizes, 3U);
  // 72 d^2 T FLOP over 4 d T bytes is 18 d; a quarter more time is a quarter more slope, and what
  // is linear in d is an intercept: 1e9 FLOP a 1024 hidden over 4 x 512 x 1024 bytes.
  EXPECT_NEAR(fits[0].counted.slope, 18, 1e-9);
  EXPECT_NEAR(fits[0].counted.intercept, 0, 1e-6);
  EXPECT_NEAR(fits[0].measured.slope, 1.25 * 18, 1e-9);
  EXPECT_NEAR(fits[0].measured.intercept, 1e9 / (4 * 512 * 1024), 1e-6);
  EXPECT_NEAR(fits[0].measured.r2, 1, 1e-12);

  RatioReport two = small_report();
  two.stages.erase(two.stages.begin());
  EXPECT_TRUE(ratio_fits(two).empty());
}

TEST(BenchRatioReport, ThePlotHasALineForEachBandwidthAndRegime) {
  const LinePlot plot = utilization_plot(small_report());
  ASSERT_EQ(plot.lines.size(), 4U);
  EXPECT_EQ(plot.lines[0].label, "500 Mb/s");
  EXPECT_FALSE(plot.lines[0].dashed);
  EXPECT_TRUE(plot.lines[1].dashed);
  EXPECT_NE(plot.title.find("round trip 100 ms"), std::string::npos) << plot.title;
  const RatioStage stage = stage_of(768);
  const double one = one_in_flight(stage.load(stage.wires[0]), {500e6, 0.1});
  ASSERT_EQ(plot.lines[1].points.size(), 5U);
  EXPECT_NEAR(plot.lines[1].points[0].second, 100 * one, 1e-9);
  for (const PlotLine& line : plot.lines) {
    if (line.dashed) {
      EXPECT_LT(line.points.front().second, line.points.back().second) << line.label;
    }
  }
}

}  // namespace
}  // namespace swarmline
