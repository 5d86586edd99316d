// The order of a peer's device work.
#include "pipeline/stage/common/device_queue.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/doors/sim_device.h"
#include "sim/doors/sim_runtime.h"
#include "tests/pipeline/phases_and_seats.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class DeviceQueueTest : public testing::Test {
 protected:
  std::uint64_t submit(const std::string& name, JobClass job_class, Phase phase) {
    StageJob job;
    job.job_class = job_class;
    job.phase = phase;
    job.job.estimate = 1ms;
    job.job.body = [this, name]() -> Result<void> {
      ran_.push_back(name);
      return {};
    };
    job.done = [this](JobReport) { ++done_; };
    return queue_.submit(std::move(job));
  }

  SimRuntime runtime_{1};
  SimDevice device_{runtime_.node(1), {}};
  DeviceQueue queue_{device_};
  std::vector<std::string> ran_;
  int done_ = 0;
};

TEST_F(DeviceQueueTest, ControlThenOlderStepsThenBackwardThenArrival) {
  submit("first", JobClass::kForward, train(1));
  submit("second", JobClass::kForward, train(1));  // these two are on the device already
  submit("forward 2", JobClass::kForward, train(2));
  submit("forward 1b", JobClass::kForward, train(1));
  submit("forward 1c", JobClass::kForward, train(1));
  submit("backward 2", JobClass::kBackward, train(2));
  submit("backward 1", JobClass::kBackward, train(1));
  submit("eval 1", JobClass::kForward, eval(1));
  submit("control", JobClass::kControl, train(7));
  runtime_.run_for(1s);
  EXPECT_EQ(ran_,
            (std::vector<std::string>{"first", "second", "control", "eval 1", "backward 1",
                                      "forward 1b", "forward 1c", "backward 2", "forward 2"}));
  EXPECT_EQ(done_, 9);
}

TEST_F(DeviceQueueTest, WhatIsNotOnTheDeviceCanBeWithdrawn) {
  const std::uint64_t on_device = submit("first", JobClass::kForward, train(1));
  submit("second", JobClass::kForward, train(1));
  const std::uint64_t waits = submit("third", JobClass::kForward, train(1));
  submit("fourth", JobClass::kForward, train(1));
  EXPECT_FALSE(queue_.withdraw(on_device));
  EXPECT_TRUE(queue_.withdraw(waits));
  EXPECT_FALSE(queue_.withdraw(waits)) << "it is gone";
  runtime_.run_for(1s);
  EXPECT_EQ(ran_, (std::vector<std::string>{"first", "second", "fourth"}));
  EXPECT_EQ(done_, 3);
}

// Weight gradients that can wait do: for what waits and for what the device has.
TEST_F(DeviceQueueTest, WeightGradientsAreAddedWhenTheDeviceHasNothing) {
  submit("first", JobClass::kForward, train(1));
  submit("weights", JobClass::kWeightGradients, train(1));
  submit("measurement", JobClass::kMonitor, train(1));
  submit("backward", JobClass::kBackward, train(1));
  runtime_.run_for(500us);
  submit("forward", JobClass::kForward, train(1));
  runtime_.run_for(1s);
  EXPECT_EQ(ran_,
            (std::vector<std::string>{"first", "backward", "forward", "weights", "measurement"}));
  EXPECT_EQ(done_, 5);
}

// Sums are the same bits whoever was fast: what was left for later is added in its order, also
// where enough of it waits to go before more is computed.
TEST_F(DeviceQueueTest, WeightGradientsThatAreHurriedKeepTheirOrder) {
  submit("first", JobClass::kForward, train(1));
  submit("second", JobClass::kForward, train(1));
  for (const char* name : {"weights 0", "weights 1", "weights 2"})
    submit(name, JobClass::kWeightGradients, train(1));
  submit("backward", JobClass::kBackward, train(1));
  submit("forward", JobClass::kForward, train(1));
  queue_.hurry_weight_gradients(train(2));  // none of that phase waits
  queue_.hurry_weight_gradients(train(1));
  queue_.hurry_weight_gradients(train(1));
  runtime_.run_for(1s);
  EXPECT_EQ(ran_, (std::vector<std::string>{"first", "second", "weights 0", "weights 1", "backward",
                                            "forward", "weights 2"}));
}

TEST_F(DeviceQueueTest, DropTakesTheWaitingWorkOfOnePhaseOnly) {
  submit("first", JobClass::kForward, train(1));
  submit("second", JobClass::kForward, train(1));
  submit("dropped", JobClass::kBackward, train(1));
  submit("kept", JobClass::kForward, train(2));
  submit("control", JobClass::kControl, train(1));
  queue_.drop(train(1));
  runtime_.run_for(1s);
  EXPECT_EQ(ran_, (std::vector<std::string>{"first", "second", "control", "kept"}));
}

// What the device has is no part of it, nor is control work.
TEST_F(DeviceQueueTest, ABacklogIsWhatWaitsAsLongAsSuchJobsTook) {
  submit("first", JobClass::kForward, train(1));
  submit("second", JobClass::kForward, train(1));
  submit("third", JobClass::kForward, train(1));
  EXPECT_EQ(queue_.backlog(), Duration::zero()) << "nobody knows yet how long they take";
  runtime_.run_for(1s);
  EXPECT_EQ(queue_.backlog(), Duration::zero());
  for (const char* name : {"a", "b", "c", "d", "e"}) submit(name, JobClass::kForward, train(2));
  submit("backward", JobClass::kBackward, train(2));
  submit("control", JobClass::kControl, train(2));
  EXPECT_EQ(queue_.backlog(), 3ms) << "three forwards; how long a backward takes is not known";
  runtime_.run_for(1s);
  EXPECT_EQ(queue_.backlog(), Duration::zero());
}

// A device of one job a millisecond, whose tensors leave for three more.
class LeavingTensorsTest : public testing::Test {
 protected:
  // `says_computed`: and does not only complete.
  void submit(const std::string& name, JobClass job_class, bool says_computed = true) {
    StageJob job;
    job.job_class = job_class;
    job.phase = train(1);
    job.job.estimate = 1ms;
    job.job.body = [this, name]() -> Result<void> {
      begun_.push_back(name);
      return {};
    };
    job.job.finish = [] { return Result<void>(); };
    if (says_computed)
      job.job.computed = [this, name]() -> Result<void> {
        computed_[name] = runtime_.now() - start_;
        return {};
      };
    job.done = [](const JobReport& report) { EXPECT_TRUE(report.result); };
    queue_.submit(std::move(job));
  }

  SimRuntime runtime_{1};
  SimDevice device_{runtime_.node(1), {.way_out = 3ms}};
  DeviceQueue queue_{device_};
  const Instant start_ = runtime_.now();
  std::vector<std::string> begun_;
  std::map<std::string, Duration> computed_;
};

TEST_F(LeavingTensorsTest, WeightGradientsBeginBesideThem) {
  submit("pass", JobClass::kForward);
  submit("weights", JobClass::kWeightGradients);
  runtime_.run_for(1s);
  EXPECT_EQ(computed_.at("weights"), 2ms);
}

TEST_F(LeavingTensorsTest, WeightGradientsWaitForWhatDoesNotSayThatItIsComputed) {
  submit("pass", JobClass::kForward, false);
  submit("weights", JobClass::kWeightGradients);
  runtime_.run_for(1s);
  EXPECT_EQ(computed_.at("weights"), 5ms) << "with the completion of the pass";
}

TEST_F(LeavingTensorsTest, TwoJobsAheadAreTwoThatAreNotComputed) {
  for (const char* name : {"a", "b", "c", "d"}) submit(name, JobClass::kForward);
  runtime_.run_for(900us);
  EXPECT_EQ(begun_.size(), 2U);
  runtime_.run_for(1ms);
  EXPECT_EQ(begun_.size(), 3U) << "the first is computed";
  runtime_.run_for(1ms);
  EXPECT_EQ(begun_.size(), 3U) << "three are not over";
  runtime_.run_for(1s);
  EXPECT_EQ(begun_, (std::vector<std::string>{"a", "b", "c", "d"}));
}

// Whenever the pass comes.
TEST(WeightGradients, DelayAPassByOneJobAtMost) {
  class Run : public LeavingTensorsTest {
   public:
    Duration computed(Duration at, int weights) {
      submit("first", JobClass::kForward);
      for (int i = 0; i < weights; ++i)
        submit("weights " + std::to_string(i), JobClass::kWeightGradients);
      runtime_.run_for(at);
      submit("urgent", JobClass::kBackward);
      runtime_.run_for(1s);
      return computed_.at("urgent");
    }

   private:
    void TestBody() override {}
  };
  for (Duration at{}; at < 12ms; at += 100us)
    EXPECT_LE(Run().computed(at, 4), Run().computed(at, 0) + 1ms) << to_seconds(at);
}

TEST_F(DeviceQueueTest, NothingRunsAfterAStop) {
  for (int i = 0; i < 5; ++i) submit("job", JobClass::kForward, train(0));
  queue_.stop();
  submit("late", JobClass::kControl, train(0));
  runtime_.run_for(1s);
  EXPECT_EQ(done_, 0);
  EXPECT_LE(ran_.size(), static_cast<std::size_t>(DeviceQueue::kAheadJobs))
      << "what the device had ends unheard";
}

}  // namespace
}  // namespace swarmline
