// Learning rates, clipping and bias corrections: the numbers that travel in a commit.

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "engine/optimizer/flat_optimizer.h"

namespace swarmline {
namespace {

constexpr LearningSchedule kSchedules[] = {LearningSchedule::kConstant, LearningSchedule::kLinear,
                                           LearningSchedule::kCosine};

OptimizerSection options_of(LearningSchedule schedule, std::uint64_t warmup) {
  OptimizerSection options;
  options.lr = 2.0;
  options.final_lr = 0.25;
  options.schedule = schedule;
  options.warmup_steps = warmup;
  return options;
}

TEST(LearningRate, WarmUpReachesTheRateAtItsLastStep) {
  for (const LearningSchedule schedule : kSchedules) {
    const OptimizerSection options = options_of(schedule, 4);
    EXPECT_EQ(learning_rate_at(options, 0, 100), 0.5);
    EXPECT_EQ(learning_rate_at(options, 1, 100), 1.0);
    EXPECT_EQ(learning_rate_at(options, 3, 100), 2.0);
    EXPECT_EQ(learning_rate_at(options, 4, 100), 2.0);
  }
}

TEST(LearningRate, SchedulesEndAtTheFinalRate) {
  const std::uint64_t total = 104;  // 100 steps after warm-up
  const OptimizerSection linear = options_of(LearningSchedule::kLinear, 4),
                         cosine = options_of(LearningSchedule::kCosine, 4);
  EXPECT_DOUBLE_EQ(learning_rate_at(linear, 54, total), 1.25);
  EXPECT_DOUBLE_EQ(learning_rate_at(cosine, 54, total), 1.25);
  EXPECT_DOUBLE_EQ(learning_rate_at(linear, 29, total), 2.0 - 1.5 * 0.25);
  EXPECT_DOUBLE_EQ(learning_rate_at(cosine, 29, total), 0.5 + 1.5 * 0.5 * (1 + std::sqrt(2.0) / 2));
  for (const std::uint64_t step : {104, 105, 100'000}) {
    EXPECT_DOUBLE_EQ(learning_rate_at(linear, step, total), 0.5);
    EXPECT_DOUBLE_EQ(learning_rate_at(cosine, step, total), 0.5);
    EXPECT_EQ(learning_rate_at(options_of(LearningSchedule::kConstant, 4), step, total), 2.0);
  }
}

TEST(LearningRate, NeverRisesAfterWarmUp) {
  for (const LearningSchedule schedule : kSchedules) {
    const OptimizerSection options = options_of(schedule, 10);
    for (std::uint64_t step = 10; step < 200; ++step) {
      ASSERT_LE(learning_rate_at(options, step + 1, 150), learning_rate_at(options, step, 150));
    }
  }
}

TEST(LearningRate, ARunShorterThanItsWarmUpStillHasARate) {
  const OptimizerSection options = options_of(LearningSchedule::kCosine, 10);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 4, 5), 1.0);
  EXPECT_EQ(learning_rate_at(options, 10, 5), 2.0);
  EXPECT_EQ(learning_rate_at(options_of(LearningSchedule::kLinear, 0), 0, 1), 2.0);
}

TEST(LearningRate, TheScheduleMayEndBeforeOrAfterTheRun) {
  for (const LearningSchedule schedule : {LearningSchedule::kLinear, LearningSchedule::kCosine}) {
    OptimizerSection options = options_of(schedule, 4);
    const double half_way = learning_rate_at(options, 52, 100);
    options.lr_decay_steps = 100;
    for (const std::uint64_t run : {50ULL, 100ULL, 1000ULL})
      EXPECT_EQ(learning_rate_at(options, 52, run), half_way);
    EXPECT_EQ(learning_rate_at(options, 500, 1000), learning_rate_at(options, 100, 1000));
  }
}

TEST(LearningRate, WsdWarmsUpStaysAndFallsLinearly) {
  OptimizerSection options = options_of(LearningSchedule::kWsd, 4);
  options.decay_ratio = 0.2;
  options.final_lr = 0.5;
  EXPECT_EQ(learning_rate_at(options, 0, 100), 0.5);
  for (const std::uint64_t step : {4ULL, 50ULL, 80ULL})
    EXPECT_EQ(learning_rate_at(options, step, 100), 2.0);
  EXPECT_NEAR(learning_rate_at(options, 90, 100), 1.5, 1e-12);
  EXPECT_NEAR(learning_rate_at(options, 100, 100), 1.0, 1e-12);
  EXPECT_NEAR(learning_rate_at(options, 150, 100), 1.0, 1e-12);
  options.decay_ratio = 1;  // no stable part: it falls from the warm-up on
  EXPECT_NEAR(learning_rate_at(options, 52, 100), 1.5, 1e-12);
}

TEST(ClipScale, OnlyShrinksAndOnlyWhenOn) {
  OptimizerSection options;
  options.clip = 2.0;
  EXPECT_EQ(clip_scale(options, 0.0), 1.0);
  EXPECT_EQ(clip_scale(options, 2.0), 1.0);
  EXPECT_EQ(clip_scale(options, 8.0), 0.25);
  options.clip = 0;
  EXPECT_EQ(clip_scale(options, 1e30), 1.0);
}

TEST(StepScalars, CorrectionsCountUpdatesNotSteps) {
  OptimizerSection options = options_of(LearningSchedule::kConstant, 0);
  options.beta1 = 0.9;
  options.beta2 = 0.99;
  options.clip = 1.0;
  const StepScalars first = step_scalars(options, 7, 10, 0, 4.0);
  EXPECT_EQ(first.learning_rate, 2.0);
  EXPECT_EQ(first.clip_scale, 0.25);
  EXPECT_NEAR(first.bias_correction1, 0.1, 1e-15);
  EXPECT_NEAR(first.bias_correction2, 0.01, 1e-15);
  const StepScalars third = step_scalars(options, 7, 10, 2, 0.5);
  EXPECT_NEAR(third.bias_correction1, 1 - 0.9 * 0.9 * 0.9, 1e-15);
  EXPECT_NEAR(third.bias_correction2, 1 - 0.99 * 0.99 * 0.99, 1e-15);
  EXPECT_EQ(third.clip_scale, 1.0);
}

}  // namespace
}  // namespace swarmline
