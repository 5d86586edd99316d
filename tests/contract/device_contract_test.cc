#include <stdexcept>
#include <string>
#include <vector>

#include "tests/contract/world.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class DeviceContract : public BackendTest {
 protected:
  Job job(char name, Duration estimate = 1ms) {
    return {.kind = JobKind::kOther, .estimate = estimate, .body = [this, name] {
              ran_ += name;
              return Result<void>{};
            }};
  }
  std::function<void(JobReport)> done(char name) {
    return [this, name](JobReport report) {
      completed_ += name;
      reports_.push_back(std::move(report));
    };
  }
  bool run_until(const std::function<bool()>& condition) {
    return world_->run_until(condition, 20s);
  }

  std::unique_ptr<Device> device_ = world_->make_device(0, 4);
  std::string ran_;        // bodies; read once their completions ran
  std::string completed_;  // completions
  std::vector<JobReport> reports_;
};

TEST_P(DeviceContract, JobsRunOneAtATimeInOrderAndCompleteOnTheControlThread) {
  for (const char name : {'a', 'b', 'c', 'd'})
    ASSERT_TRUE(device_->submit(job(name), done(name)).has_value());
  EXPECT_EQ(completed_, "") << "completed inside submit()";
  EXPECT_EQ(device_->queued(), 4);
  ASSERT_TRUE(run_until([&] { return completed_.size() == 4; }));
  EXPECT_EQ(ran_, "abcd");
  EXPECT_EQ(completed_, "abcd");
  EXPECT_EQ(device_->queued(), 0);
  for (const JobReport& report : reports_) EXPECT_TRUE(report.result.has_value());
}

TEST_P(DeviceContract, AFullQueueRefusesAndTakesAgainAfterACompletion) {
  for (const char name : {'a', 'b', 'c', 'd'})
    ASSERT_TRUE(device_->submit(job(name), done(name)).has_value());
  const Result<void> fifth = device_->submit(job('e'), done('e'));
  ASSERT_FALSE(fifth.has_value());
  EXPECT_EQ(fifth.error().code, ErrorCode::kRefused);
  ASSERT_TRUE(run_until([&] { return completed_.size() >= 1; }));
  EXPECT_TRUE(device_->submit(job('f'), done('f')).has_value());
  ASSERT_TRUE(run_until([&] { return completed_.size() == 5; }));
  EXPECT_EQ(ran_, "abcdf") << "a refused job never runs";
}

TEST_P(DeviceContract, ErrorsAndExceptionsOfABodyBecomeItsReport) {
  const Job fails{.body = [] { return Result<void>(fail(ErrorCode::kDevice, "out of order")); }};
  const Job throws{.body = []() -> Result<void> { throw std::runtime_error("shape mismatch"); }};
  ASSERT_TRUE(device_->submit(fails, done('f')).has_value());
  ASSERT_TRUE(device_->submit(throws, done('t')).has_value());
  ASSERT_TRUE(device_->submit(job('a'), done('a')).has_value());
  ASSERT_TRUE(run_until([&] { return completed_.size() == 3; }));
  EXPECT_EQ(reports_[0].result.error().code, ErrorCode::kDevice);
  EXPECT_EQ(reports_[0].result.error().what, "out of order");
  EXPECT_EQ(reports_[1].result.error().code, ErrorCode::kDevice);
  EXPECT_EQ(reports_[1].result.error().what, "shape mismatch");
  EXPECT_TRUE(reports_[2].result.has_value()) << "the device goes on";
}

TEST_P(DeviceContract, ServiceTimesAddUp) {
  for (const char name : {'a', 'b'})
    ASSERT_TRUE(device_->submit(job(name, 3ms), done(name)).has_value());
  ASSERT_TRUE(run_until([&] { return completed_.size() == 2; }));
  EXPECT_EQ(device_->busy_total(), reports_[0].service + reports_[1].service);
}

TEST_P(DeviceContract, ACompletionMaySubmitTheNextJob) {
  int left = 20;
  std::function<void(JobReport)> next = [&](JobReport) {
    if (--left > 0) {
      EXPECT_TRUE(device_->submit(job('x'), next).has_value());
    }
  };
  ASSERT_TRUE(device_->submit(job('x'), next).has_value());
  ASSERT_TRUE(run_until([&] { return left == 0; }));
  EXPECT_EQ(ran_.size(), 20U);
}

TEST_P(DeviceContract, StopDropsWhatWaitsAndEveryCompletionComesOnce) {
  for (const char name : {'a', 'b', 'c', 'd'})
    ASSERT_TRUE(device_->submit(job(name), done(name)).has_value());
  device_->stop();
  device_->stop();
  EXPECT_EQ(completed_, "");
  EXPECT_EQ(device_->submit(job('e'), done('e')).error().code, ErrorCode::kRefused);
  ASSERT_TRUE(run_until([&] { return completed_.size() == 4; }));
  world_->run_for(10ms);
  EXPECT_EQ(completed_.size(), 4U);
  EXPECT_EQ(device_->queued(), 0);
  std::size_t stopped = 0;
  for (const JobReport& report : reports_) stopped += report.result ? 0 : 1;
  EXPECT_EQ(stopped + ran_.size(), 4U) << "each job either ran or was reported stopped";
}

TEST_P(DeviceContract, DestroyingTheDeviceLeavesItsCompletionsToTheRuntime) {
  for (const char name : {'a', 'b', 'c'})
    ASSERT_TRUE(device_->submit(job(name), done(name)).has_value());
  device_.reset();
  ASSERT_TRUE(run_until([&] { return completed_.size() == 3; }));
}

SWARMLINE_FOR_EVERY_BACKEND(DeviceContract);

}  // namespace
}  // namespace swarmline
