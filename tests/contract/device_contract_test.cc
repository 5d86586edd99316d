#include <cctype>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
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

  // A job whose body begins something: what its parts do is logged, the finish in capitals.
  Job begun(char name, std::function<Result<void>()> finish = {}) {
    Job job{.kind = JobKind::kOther, .estimate = 1ms, .body = [this, name] {
              log(name);
              return Result<void>{};
            }};
    job.finish = [this, name, finish = std::move(finish)]() -> Result<void> {
      if (finish) SWARMLINE_TRY(finish());
      log(static_cast<char>(std::toupper(name)));
      return {};
    };
    return job;
  }
  void log(char what) {
    const std::lock_guard lock(mutex_);
    log_ += what;
  }
  std::string logged() {
    const std::lock_guard lock(mutex_);
    return log_;
  }

  std::mutex mutex_;
  std::string log_;  // under mutex_
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

// Between the body and the finish; what fails says nothing.
TEST_P(DeviceContract, ProductsAreSaidToBeComputedBeforeTheCompletion) {
  std::string said;
  const auto says = [&](Job job, char name, Result<void> computed) {
    job.computed = [this, name, computed] {
      log(static_cast<char>(name - 'a' + '1'));
      return computed;
    };
    job.on_computed = [this, name, &said] {
      EXPECT_FALSE(completed_.contains(name));
      said += name;
    };
    return job;
  };
  Job without_a_body = begun('b');
  without_a_body.body = [] { return fail(ErrorCode::kDevice, "no body"); };
  const Result<void> fault = fail(ErrorCode::kDevice, "no products");
  ASSERT_TRUE(device_->submit(says(begun('a'), 'a', {}), done('a')));
  ASSERT_TRUE(device_->submit(says(std::move(without_a_body), 'b', {}), done('b')));
  ASSERT_TRUE(device_->submit(says(begun('c'), 'c', fault), done('c')));
  ASSERT_TRUE(device_->submit(begun('d'), done('d')));
  ASSERT_TRUE(run_until([&] { return completed_.size() == 4; }));
  EXPECT_EQ(completed_, "abcd");
  EXPECT_EQ(said, "a");
  const std::string all = logged();
  EXPECT_LT(all.find('a'), all.find('1'));
  EXPECT_LT(all.find('1'), all.find('A'));
  EXPECT_FALSE(all.contains('2') || all.contains('B') || all.contains('C')) << all;
  EXPECT_EQ(reports_[1].result.error().what, "no body");
  EXPECT_EQ(reports_[2].result.error().what, "no products");
  EXPECT_TRUE(reports_[3].result);
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

// A body runs while the device goes on with what the one before it began.
TEST_P(DeviceContract, BodiesDoNotWaitForFinishes) {
  const auto b_has_begun = [this]() -> Result<void> {
    for (int tries = 0; tries < 2000 && logged().find('b') == std::string::npos; ++tries)
      std::this_thread::sleep_for(5ms);
    return {};
  };
  ASSERT_TRUE(device_->submit(begun('a', b_has_begun), done('a')).has_value());
  ASSERT_TRUE(device_->submit(begun('b'), done('b')).has_value());
  ASSERT_TRUE(run_until([&] { return completed_.size() == 2; }));
  EXPECT_EQ(logged(), "abAB");
  EXPECT_EQ(completed_, "ab");
}

TEST_P(DeviceContract, JobsOfBothKindsCompleteInOrder) {
  ASSERT_TRUE(device_->submit(begun('a'), done('a')).has_value());
  ASSERT_TRUE(device_->submit(job('b'), done('b')).has_value());
  ASSERT_TRUE(device_->submit(begun('c'), done('c')).has_value());
  ASSERT_TRUE(device_->submit(job('d'), done('d')).has_value());
  ASSERT_TRUE(run_until([&] { return completed_.size() == 4; }));
  EXPECT_EQ(completed_, "abcd");
  EXPECT_EQ(ran_, "bd");
  Duration sum{};
  for (const JobReport& report : reports_) {
    EXPECT_TRUE(report.result.has_value());
    sum += report.service;
  }
  EXPECT_EQ(device_->busy_total(), sum) << "no time counts for two jobs";
}

TEST_P(DeviceContract, WhatFailsInEitherPartIsReported) {
  Job fails = begun('a');
  fails.body = [] { return Result<void>(fail(ErrorCode::kOutOfMemory, "no room")); };
  const auto throws = []() -> Result<void> { throw std::runtime_error("lost on the way"); };
  ASSERT_TRUE(device_->submit(fails, done('a')).has_value());
  ASSERT_TRUE(device_->submit(begun('b', throws), done('b')).has_value());
  ASSERT_TRUE(device_->submit(begun('c'), done('c')).has_value());
  ASSERT_TRUE(run_until([&] { return completed_.size() == 3; }));
  EXPECT_EQ(reports_[0].result.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(reports_[1].result.error().code, ErrorCode::kDevice);
  EXPECT_EQ(reports_[1].result.error().what, "lost on the way");
  EXPECT_TRUE(reports_[2].result.has_value());
  EXPECT_EQ(logged().find('A'), std::string::npos) << "there is nothing to wait for";
}

TEST_P(DeviceContract, WhatHasBegunEndsBeforeADeviceThatIsStopped) {
  for (const char name : {'a', 'b', 'c', 'd'})
    ASSERT_TRUE(device_->submit(begun(name), done(name)).has_value());
  device_->stop();
  ASSERT_TRUE(run_until([&] { return completed_.size() == 4; }));
  std::size_t stopped = 0;
  for (const JobReport& report : reports_) stopped += report.result ? 0 : 1;
  const std::string both = logged();
  EXPECT_EQ(both.size(), 2 * (4 - stopped)) << both << ": each began and ended, or neither";
  EXPECT_EQ(device_->queued(), 0);
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
