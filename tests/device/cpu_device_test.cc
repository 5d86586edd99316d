#include "engine/device/cpu_device.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <sys/resource.h>
#include <thread>

#include <gtest/gtest.h>

#include "engine/runtime/asio_runtime.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class Cpu : public ::testing::Test {
 protected:
  // Runs the jobs one after the other and returns their service times.
  std::vector<Duration> run(CpuDevice& device, JobKind kind, int count, Duration compute = 0ms) {
    std::vector<Duration> services;
    std::function<void()> submit = [&] {
      const Job job{.kind = kind, .body = [compute] {
                      std::this_thread::sleep_for(compute);
                      return Result<void>{};
                    }};
      ASSERT_TRUE(device
                      .submit(job,
                              [&](JobReport report) {
                                services.push_back(report.service);
                                if (services.size() < static_cast<std::size_t>(count)) submit();
                              })
                      .has_value());
    };
    submit();
    EXPECT_TRUE(runtime_.run_until(
        [&] { return services.size() == static_cast<std::size_t>(count); }, 30s));
    return services;
  }

  AsioRuntime runtime_;
};

TEST_F(Cpu, EmulationHoldsTheDeviceForTheSetTime) {
  CpuDevice device(runtime_, {.emulation = {.forward = 20ms, .backward = 40ms}});
  for (const Duration service : run(device, JobKind::kForward, 3, 5ms)) {
    EXPECT_GE(service, 20ms);
    EXPECT_LT(service, 200ms);
  }
  for (const Duration service : run(device, JobKind::kBackward, 2)) EXPECT_GE(service, 40ms);
  for (const Duration service : run(device, JobKind::kOptimizer, 2)) EXPECT_LT(service, 20ms);
}

// However late its thread wakes: what a peer does by emulated speed must not depend on the machine.
TEST_F(Cpu, AnEmulatedTimeIsExact) {
  CpuDevice device(runtime_, {.emulation = {.forward = 50ms}});
  for (const Duration service : run(device, JobKind::kForward, 4)) EXPECT_EQ(service, 50ms);
  EXPECT_EQ(device.busy_total(), 200ms);
}

TEST_F(Cpu, ARealTimeLongerThanTheSetOneCountsAsIs) {
  CpuDevice device(runtime_, {.emulation = {.forward = 5ms}});
  EXPECT_GE(run(device, JobKind::kForward, 1, 30ms)[0], 30ms);
}

TEST_F(Cpu, ASlowedDeviceHoldsJobsSoManyTimesAsLong) {
  CpuDevice device(runtime_, {.emulation = {.forward = 10ms}});
  device.slow_down(3);
  EXPECT_EQ(run(device, JobKind::kForward, 1)[0], 30ms);
  EXPECT_GE(run(device, JobKind::kOptimizer, 1, 10ms)[0], 30ms) << "also what is not emulated";
  device.slow_down(1);
  EXPECT_EQ(run(device, JobKind::kForward, 1)[0], 10ms);
}

// What goes on by itself has an emulated device to itself, too.
TEST_F(Cpu, AnEmulatedDeviceFinishesOneJobBeforeItBeginsTheNext) {
  CpuDevice device(runtime_, {.emulation = {.forward = 10ms}});
  std::atomic<int> under_way = 0, most = 0, done = 0;
  std::vector<Duration> services;
  for (int i = 0; i < 3; ++i) {
    Job job{.kind = JobKind::kForward, .body = [&] {
              most = std::max<int>(most, ++under_way);
              return Result<void>{};
            }};
    job.finish = [&] {
      --under_way;
      return Result<void>{};
    };
    ASSERT_TRUE(device.submit(std::move(job), [&](const JobReport& report) {
      services.push_back(report.service);
      ++done;
    }));
  }
  ASSERT_TRUE(runtime_.run_until([&] { return done == 3; }, 30s));
  EXPECT_EQ(most, 1);
  EXPECT_EQ(services, std::vector<Duration>(3, 10ms));
}

// A device that goes on is held by one job at a time: what passes while another ends is that one's.
TEST_F(Cpu, NoTimeCountsForTwoJobsThatGoOn) {
  CpuDevice device(runtime_, {});
  int done = 0;
  Duration sum{};
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 4; ++i) {
    Job job{.body = [] { return Result<void>{}; }};
    job.finish = [] {
      std::this_thread::sleep_for(10ms);
      return Result<void>{};
    };
    ASSERT_TRUE(device.submit(std::move(job), [&](const JobReport& report) {
      EXPECT_GE(report.service, 10ms);
      sum += report.service;
      ++done;
    }));
  }
  ASSERT_TRUE(runtime_.run_until([&] { return done == 4; }, 30s));
  EXPECT_LE(sum, std::chrono::steady_clock::now() - start);
  EXPECT_EQ(device.busy_total(), sum);
}

TEST_F(Cpu, JitterStaysWithinItsBoundsAndFollowsTheSeed) {
  CpuDevice device(runtime_, {.emulation = {.forward = 10ms, .jitter = 0.5}, .seed = 3});
  const std::vector<Duration> services = run(device, JobKind::kForward, 12);
  for (const Duration service : services) EXPECT_GE(service, 5ms);
  const auto [least, most] = std::ranges::minmax(services);
  EXPECT_GT(most - least, 1ms) << "twelve draws from [5, 15] ms";
}

TEST_F(Cpu, AnEmulatedDeviceSleeps) {
  const auto cpu_seconds = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
  };
  CpuDevice device(runtime_, {.emulation = {.forward = 100ms}});
  const double before = cpu_seconds();
  run(device, JobKind::kForward, 3);
  EXPECT_LT(cpu_seconds() - before, 0.1) << "of 0.3 s held";
}

TEST_F(Cpu, StopCutsAnEmulatedSleepShort) {
  CpuDevice device(runtime_, {.emulation = {.forward = 60s}});
  std::atomic<bool> started = false;
  std::optional<JobReport> report;
  ASSERT_TRUE(device
                  .submit({.kind = JobKind::kForward,
                           .body =
                               [&] {
                                 started = true;
                                 return Result<void>{};
                               }},
                          [&](JobReport r) { report = std::move(r); })
                  .has_value());
  while (!started) std::this_thread::yield();
  const Instant before = runtime_.now();
  device.stop();
  EXPECT_LT(runtime_.now() - before, 5s);
  ASSERT_TRUE(runtime_.run_until([&] { return report.has_value(); }, 5s));
  EXPECT_TRUE(report->result.has_value()) << "it had computed";
}

TEST_F(Cpu, BodiesRunOffTheControlThreadAndCompletionsOnIt) {
  std::thread::id hook, body, completion;
  CpuDevice device(runtime_, {.on_thread_start = [&] { hook = std::this_thread::get_id(); }});
  ASSERT_TRUE(device
                  .submit({.body =
                               [&] {
                                 body = std::this_thread::get_id();
                                 return Result<void>{};
                               }},
                          [&](JobReport) { completion = std::this_thread::get_id(); })
                  .has_value());
  ASSERT_TRUE(runtime_.run_until([&] { return completion != std::thread::id(); }, 5s));
  EXPECT_EQ(completion, std::this_thread::get_id());
  EXPECT_NE(body, completion);
  EXPECT_EQ(body, hook);
}

TEST_F(Cpu, WhatABodyOwnsDiesOnTheControlThreadBeforeItsCompletion) {
  CpuDevice device(runtime_, {});
  struct Owned {
    std::thread::id* died;
    ~Owned() { *died = std::this_thread::get_id(); }
  };
  std::thread::id died;
  bool completed = false;
  ASSERT_TRUE(
      device
          .submit({.body = [owned = std::make_shared<Owned>(&died)] { return Result<void>{}; }},
                  [&](JobReport) {
                    EXPECT_EQ(died, std::this_thread::get_id());
                    completed = true;
                  })
          .has_value());
  ASSERT_TRUE(runtime_.run_until([&] { return completed; }, 5s));
}

}  // namespace
}  // namespace swarmline
