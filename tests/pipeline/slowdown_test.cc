#include "pipeline/stage/common/slowdown.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

using namespace std::chrono_literals;

// It has forwards of 20 ms and halves of backwards of 30 ms behind it.
Slowdown usual() {
  Slowdown slowdown;
  for (std::uint32_t i = 0; i < 100; ++i) {
    slowdown.on_job(JobKind::kForward, 20ms);
    slowdown.on_job(JobKind::kInputGradient, 30ms);
  }
  return slowdown;
}

TEST(Slowdown, EachKindOfJobIsHeldAgainstItsOwnTime) {
  Slowdown slowdown = usual();
  EXPECT_NEAR(slowdown.factor(), 1, 1e-9);
  slowdown.on_job(JobKind::kForward, 80ms);
  EXPECT_FALSE(slowdown.is_slow()) << "one job may have waited for a core";
  slowdown.on_job(JobKind::kInputGradient, 120ms);
  EXPECT_NEAR(slowdown.factor(), 4, 0.1);
  EXPECT_TRUE(slowdown.is_slow());
  slowdown.on_job(JobKind::kForward, 20ms);
  slowdown.on_job(JobKind::kInputGradient, 30ms);
  EXPECT_FALSE(slowdown.is_slow()) << "it is over at once";
}

TEST(Slowdown, NothingIsKnownOfTooFewJobsNorOfOtherWork) {
  Slowdown slowdown;
  for (std::uint32_t i = 0; i < Slowdown::kSamplesMin; ++i)
    slowdown.on_job(JobKind::kForward, i % 2 == 0 ? 1ms : 1s);
  EXPECT_EQ(slowdown.factor(), 1);
  for (const JobKind kind : {JobKind::kReduce, JobKind::kOptimizer, JobKind::kOther})
    for (std::uint32_t i = 0; i < 100; ++i) slowdown.on_job(kind, i < 50 ? 1ms : 1s);
  EXPECT_EQ(slowdown.factor(), 1);
}

TEST(Slowdown, ShortJobsAreNotSlow) {
  Slowdown slowdown;
  for (int i = 0; i < 100; ++i) slowdown.on_job(JobKind::kForward, 5ms);
  for (int i = 0; i < 2; ++i) slowdown.on_job(JobKind::kForward, Slowdown::kLong - 1ms);
  EXPECT_FALSE(slowdown.is_slow());
  for (int i = 0; i < 2; ++i) slowdown.on_job(JobKind::kForward, Slowdown::kLong);
  EXPECT_TRUE(slowdown.is_slow());
}

TEST(Slowdown, WhoIsSlowMayHaveWhatItIsDoneWithInTheSameTime) {
  Slowdown slowdown = usual();
  EXPECT_EQ(slowdown.may_have(9), 9U);
  for (int i = 0; i < 2; ++i) slowdown.on_job(JobKind::kForward, 60ms);
  EXPECT_EQ(slowdown.may_have(9), 4U) << "the usual time has grown a little";
  EXPECT_EQ(slowdown.may_have(1), Slowdown::kFewest);
}

TEST(Slowdown, WhoStaysSlowIsUsuallySo) {
  Slowdown slowdown = usual();
  for (int i = 0; i < 20; ++i) slowdown.on_job(JobKind::kForward, 80ms);
  EXPECT_TRUE(slowdown.is_slow());
  for (int i = 0; i < 300; ++i) slowdown.on_job(JobKind::kForward, 80ms);
  EXPECT_FALSE(slowdown.is_slow());
}

}  // namespace
}  // namespace swarmline
