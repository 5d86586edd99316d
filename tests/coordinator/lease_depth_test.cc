#include "pipeline/coordinator/steps/lease_depth.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr PeerId kOne{1}, kOther{2};
constexpr std::uint32_t kWindow = 16;

// Four stages of four peers, 0.3 s a microbatch each: 13.3 microbatches per second, of which one
// that meets nobody takes 0.8 s on devices.
const std::vector<LeaseDepth::StageSpeed> kStages(4, {.peers = 4, .rate = 4 / 0.3});

Instant at(Duration since) {
  return Instant{} + since;
}

// A step in which the first microbatch took so long, and those behind it longer.
void step(LeaseDepth& depth, Duration first) {
  for (int i = 0; i < 4; ++i)
    for (const PeerId source : {kOne, kOther}) depth.on_leased(source, true, at(0s));
  for (int i = 0; i < 4; ++i)
    for (const PeerId source : {kOne, kOther}) depth.on_finished(source, 1, at(first + i * 300ms));
  depth.on_step_over(kStages);
}

TEST(LeaseDepthTest, IsTheUsualWindowUntilAStepWasMeasured) {
  LeaseDepth depth(kWindow);
  EXPECT_EQ(depth.of_all(2, true), 32U);
  depth.on_step_over(kStages);
  EXPECT_EQ(depth.of_all(2, true), 32U);
}

TEST(LeaseDepthTest, WithoutLinksItIsWhatDevicesHoldAndWhatWaitsBeforeThem) {
  MarkExpected learned("lease_depth.learned");
  LeaseDepth depth(kWindow);
  step(depth, 800ms);
  EXPECT_EQ(depth.of_all(4, true), 40U);  // 16 peers, 2.5 each
}

TEST(LeaseDepthTest, LinksHoldTheirRateTimesTheirTime) {
  LeaseDepth depth(kWindow);
  step(depth, 2300ms);
  EXPECT_EQ(depth.of_all(4, true), 60U);  // 1.5 s of 13.3 a second beside the 40
}

TEST(LeaseDepthTest, StaysWithinTheMemoryThatIsSetAside) {
  LeaseDepth depth(kWindow);
  step(depth, 60s);
  EXPECT_EQ(depth.of_all(4, true), 4U * 2 * kWindow);
  EXPECT_EQ(depth.of_all(4, false), 4U * kWindow);
  EXPECT_EQ(depth.of_all(1, true), 2U * kWindow);
}

TEST(LeaseDepthTest, EachSourceHasTwoWhateverIsMeasured) {
  LeaseDepth depth(kWindow);
  depth.on_leased(kOne, true, at(0s));
  depth.on_finished(kOne, 1, at(1ms));
  depth.on_step_over(std::vector<LeaseDepth::StageSpeed>{{.peers = 1, .rate = 1000}});
  EXPECT_EQ(depth.of_all(8, true), 16U);
}

// One step that was measured wrongly costs nothing.
TEST(LeaseDepthTest, OfTwoStepsTheLargerCounts) {
  LeaseDepth depth(kWindow);
  step(depth, 2300ms);
  step(depth, 800ms);
  EXPECT_EQ(depth.of_all(4, true), 60U);
  step(depth, 800ms);
  EXPECT_EQ(depth.of_all(4, true), 40U);
}

// Where steps overlap the pipeline is never empty: what waits there says nothing about links.
TEST(LeaseDepthTest, WhoeverMeetsOthersMeasuresNothing) {
  LeaseDepth depth(kWindow);
  step(depth, 800ms);
  for (int i = 0; i < 8; ++i) depth.on_leased(kOne, true, at(10s));
  depth.on_finished(kOne, 4, at(11s));
  depth.on_leased(kOther, true, at(11s));
  depth.on_finished(kOther, 1, at(20s));
  depth.on_step_over(kStages);
  EXPECT_EQ(depth.of_all(4, true), 43U) << "of one second, not of nine";
}

TEST(LeaseDepthTest, EvaluationsMeasureNothing) {
  LeaseDepth depth(kWindow);
  depth.on_leased(kOne, false, at(0s));
  depth.on_finished(kOne, 1, at(5s));
  depth.on_step_over(kStages);
  EXPECT_EQ(depth.of_all(2, true), 32U);
}

TEST(LeaseDepthTest, AStageOfUnknownSpeedLeavesItAsItWas) {
  LeaseDepth depth(kWindow);
  step(depth, 800ms);
  depth.on_leased(kOne, true, at(0s));
  depth.on_finished(kOne, 1, at(9s));
  std::vector<LeaseDepth::StageSpeed> stages = kStages;
  stages[2].rate = 0;
  depth.on_step_over(stages);
  EXPECT_EQ(depth.of_all(4, true), 40U);
}

// What the coordinator before leased ends first, and nobody takes it for what was leased since.
TEST(LeaseDepthTest, WhatWasLeasedBeforeARestartMeasuresNothing) {
  LeaseDepth depth(kWindow);
  depth.on_restored(kOne, 3);
  depth.on_leased(kOne, true, at(10s));
  depth.on_finished(kOne, 3, at(10001ms));
  depth.on_step_over(kStages);
  EXPECT_EQ(depth.of_all(2, true), 32U) << "a round trip of a millisecond";
  depth.on_finished(kOne, 1, at(11s));
  step(depth, 800ms);
  EXPECT_EQ(depth.of_all(4, true), 40U);
}

TEST(LeaseDepthTest, WhoIsGoneIsForgotten) {
  LeaseDepth depth(kWindow);
  depth.on_leased(kOne, true, at(0s));
  depth.forget(kOne);
  depth.on_finished(kOne, 1, at(9s));
  depth.on_step_over(kStages);
  EXPECT_EQ(depth.of_all(2, true), 32U);
  step(depth, 800ms);
  depth.forget_all();
  EXPECT_EQ(depth.of_all(2, true), 32U);
}

}  // namespace
}  // namespace swarmline
