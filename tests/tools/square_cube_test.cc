#include "tools/predict/square_cube.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace swarmline {
namespace {

// forward 1, backward 2, no codec; a second on the wire each way.
constexpr StageLoad kLoad{.forward_seconds = 1,
                          .backward_seconds = 2,
                          .codec_seconds = 0,
                          .forward_bytes = 1e6,
                          .backward_bytes = 1e6};
constexpr LinkSpeed kInstant{1e18, 0};
constexpr double kMessages = 1e-3;  // what messages beside the wire may take of a share
constexpr LinkSpeed kSlow{8e6, 4};

TEST(SquareCube, OneMicrobatchWaitsForEverything) {
  // Two stages: 6 s of computing, twice 1 s on the wire and 2 s of delay.
  EXPECT_NEAR(many_in_flight(kLoad, kSlow, {.stages = 2, .in_flight = 1}), 3.0 / 12, kMessages);
  EXPECT_NEAR(many_in_flight(kLoad, kInstant, {.stages = 2, .in_flight = 1}), 3.0 / 6, kMessages);
  EXPECT_NEAR(many_in_flight(kLoad, kSlow, {.stages = 4, .in_flight = 1}), 3.0 / 30, kMessages);
  // A step of any number is the same then.
  EXPECT_NEAR(many_in_flight(kLoad, kSlow, {.stages = 2, .in_flight = 1, .microbatches = 5}),
              3.0 / 12, kMessages);
}

TEST(SquareCube, TheDelayHidesBehindMicrobatchesInFlight) {
  // Round trips of 12 s, and 3 more where a backward waits for a forward that was given ahead.
  EXPECT_NEAR(many_in_flight(kLoad, kSlow, {.stages = 2, .in_flight = 2}), 6.0 / 15, kMessages);
  EXPECT_NEAR(many_in_flight(kLoad, kSlow, {.stages = 2, .in_flight = 3}), 9.0 / 15, kMessages);
  EXPECT_NEAR(many_in_flight(kLoad, kSlow, {.stages = 2, .in_flight = 8}), 1, kMessages);
  EXPECT_NEAR(many_in_flight(kLoad, kInstant, {.stages = 4, .in_flight = 8}), 1, kMessages);
}

// What a real swarm of two stages with emulated devices took for steps of 12, 24 and 48, less
// the 0.14 s that its commits took: 1.16, 2.13, 4.14 s. A device that always chose at the last
// moment would take 1.085, 1.985, 3.785.
TEST(SquareCube, AJobGivenAheadIsNotTakenBack) {
  const StageLoad load{.forward_seconds = 0.025,
                       .backward_seconds = 0.05,
                       .forward_bytes = 131'072,
                       .backward_bytes = 131'072};
  const LinkSpeed link{200e6, 0.1};
  const auto seconds = [&](std::uint32_t m) {
    return 0.075 * m / many_in_flight(load, link, {.stages = 2, .in_flight = 4, .microbatches = m});
  };
  EXPECT_NEAR(seconds(12), 1.16, 0.01);
  EXPECT_NEAR(seconds(24), 2.13, 0.05);
  EXPECT_NEAR(seconds(48), 4.14, 0.05);
}

TEST(SquareCube, NoNumberInFlightBeatsTheLink) {
  StageLoad wide = kLoad;
  wide.forward_bytes = wide.backward_bytes = 6e6;  // 6 s each
  const LinkSpeed link{8e6, 0.2};
  // Ends send one tensor, a middle stage two, so 3 of 6 or of 12 seconds.
  EXPECT_NEAR(many_in_flight(wide, link, {.stages = 2, .in_flight = 16}), 3.0 / 6, 0.01);
  EXPECT_NEAR(many_in_flight(wide, link, {.stages = 3, .in_flight = 24}), 3.0 / 12, 0.01);
  EXPECT_EQ(break_even_bits_per_second(wide), 8 * 12e6 / 3);
  const LinkSpeed enough{break_even_bits_per_second(wide), 0.2};
  EXPECT_NEAR(many_in_flight(wide, enough, {.stages = 3, .in_flight = 24}), 1, 0.01);
}

TEST(SquareCube, AStepFillsAndEmptiesTheChain) {
  // Two stages and no links: the last device waits for the first forward, the first one for the
  // last backward: m microbatches take 3 m + 3 seconds.
  for (const std::uint32_t m : {1U, 4U, 16U, 64U}) {
    EXPECT_NEAR(many_in_flight(kLoad, kInstant, {.stages = 2, .in_flight = 4, .microbatches = m}),
                3.0 * m / (3.0 * m + 3), kMessages);
  }
}

TEST(SquareCube, CodecTimeIsBusyButNoUse) {
  StageLoad load = kLoad;
  load.codec_seconds = 1;
  EXPECT_NEAR(one_in_flight(load, {8e6, 0}), 1.5 / (1.5 + 0.5 + 1), 1e-9);
  EXPECT_NEAR(many_in_flight(load, kInstant, {.stages = 2, .in_flight = 1}), 4.0 / 8, kMessages);
}

TEST(SquareCube, FitsALine) {
  const std::vector<std::pair<double, double>> line = {{1, 5}, {2, 7}, {4, 11}};
  EXPECT_NEAR(fit_line(line).slope, 2, 1e-12);
  EXPECT_NEAR(fit_line(line).intercept, 3, 1e-12);
  EXPECT_NEAR(fit_line(line).r2, 1, 1e-12);
  const std::vector<std::pair<double, double>> scattered = {{0, 0}, {1, 2}, {2, 1}, {3, 3}};
  EXPECT_NEAR(fit_line(scattered).slope, 0.8, 1e-12);
  EXPECT_NEAR(fit_line(scattered).r2, 0.64, 1e-12);
}

TEST(SquareCube, FitsTimes) {
  std::vector<TimeSample> samples;
  for (const double d : {768.0, 1024.0, 2048.0}) {
    const double flops = 512 * 72 * d * d, elements = 512 * d;
    samples.push_back({flops, elements, 1e-11 * flops + 3e-8 * elements});
  }
  const TimeTrend trend = fit_times(samples);
  EXPECT_NEAR(trend.per_flop, 1e-11, 1e-14);
  EXPECT_NEAR(trend.per_element, 3e-8, 1e-11);
  // One sample cannot tell them apart; faster than linear is no negative pass.
  EXPECT_EQ(fit_times(std::span(samples).first(1)).per_element, 0);
  samples = {{1e9, 1e5, 1}, {4e9, 2e5, 5}};
  EXPECT_EQ(fit_times(samples).per_element, 0);
  EXPECT_GT(fit_times(samples).per_flop, 0);
}

}  // namespace
}  // namespace swarmline
