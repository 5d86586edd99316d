#include "engine/runtime/asio_runtime.h"

#include <csignal>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace swarmline {
namespace {

using namespace std::chrono_literals;

TEST(AsioRuntime, PostsFromOtherThreadsRunOnTheControlThreadInEachOnesOrder) {
  AsioRuntime runtime;
  constexpr int kThreads = 4, kPosts = 2000;
  std::map<int, int> next;
  int total = 0;
  bool in_order = true;
  const std::thread::id control = std::this_thread::get_id();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kPosts; ++i) {
        runtime.post([&, t, i] {
          in_order = in_order && next[t]++ == i && std::this_thread::get_id() == control;
          if (++total == kThreads * kPosts) runtime.request_stop();
        });
      }
    });
  }
  runtime.run();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(total, kThreads * kPosts);
  EXPECT_TRUE(in_order);
}

TEST(AsioRuntime, APostWakesASleepingRun) {
  AsioRuntime runtime;
  std::thread other([&] {
    std::this_thread::sleep_for(30ms);
    runtime.post([&] { runtime.request_stop(); });
  });
  runtime.run();
  other.join();
}

TEST(AsioRuntime, RequestStopRunsWhatWasPostedBeforeAndRunMayBeCalledAgain) {
  AsioRuntime runtime;
  std::string ran;
  runtime.post([&] { ran += 'a'; });
  runtime.request_stop();  // before run(): it still ends
  runtime.post([&] { ran += 'b'; });
  runtime.run();
  EXPECT_EQ(ran, "a");
  runtime.request_stop();
  runtime.run();
  EXPECT_EQ(ran, "ab");
}

TEST(AsioRuntime, RunUntilGivesUpAtItsLimit) {
  AsioRuntime runtime;
  const Instant start = runtime.now();
  EXPECT_FALSE(runtime.run_until([] { return false; }, 30ms));
  EXPECT_GE(runtime.now() - start, 30ms);
  EXPECT_LT(runtime.now() - start, 10s);
  EXPECT_TRUE(runtime.run_until([] { return true; }, 0ms));
}

TEST(AsioRuntime, SignalsArriveOnTheControlThreadEachTime) {
  AsioRuntime runtime;
  std::vector<int> signals;
  const std::thread::id control = std::this_thread::get_id();
  runtime.on_signals([&](int number) {
    EXPECT_EQ(std::this_thread::get_id(), control);
    signals.push_back(number);
  });
  for (const int number : {SIGINT, SIGTERM, SIGINT}) {
    const std::size_t before = signals.size();
    std::raise(number);
    EXPECT_EQ(signals.size(), before);
    ASSERT_TRUE(runtime.run_until([&] { return signals.size() == before + 1; }, 5s));
  }
  EXPECT_EQ(signals, (std::vector<int>{SIGINT, SIGTERM, SIGINT}));
}

TEST(AsioRuntime, SlowCallbacksAreCounted) {
  AsioRuntime runtime;
  int ran = 0;
  runtime.post([&] { ++ran; });
  runtime.post([&] {
    std::this_thread::sleep_for(AsioRuntime::kSlowHandler + 5ms);
    ++ran;
  });
  ASSERT_TRUE(runtime.run_until([&] { return ran == 2; }, 5s));
  EXPECT_EQ(runtime.stats().handlers, 2U);
  EXPECT_GE(runtime.stats().slow_handlers, 1U);
  EXPECT_GE(runtime.stats().slowest, AsioRuntime::kSlowHandler);
}

TEST(AsioRuntime, FarInstantsDoNotOverflow) {
  AsioRuntime runtime;
  bool fired = false;
  const TimerId far = runtime.call_at(Instant::max(), [] { FAIL(); });
  runtime.call_after(5ms, [&] { fired = true; });
  EXPECT_TRUE(runtime.run_until([&] { return fired; }, 5s));
  runtime.cancel(far);
}

TEST(AsioRuntime, DestroyingItDropsPendingCallbacksUncalled) {
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> weak = owned;
  {
    AsioRuntime runtime;
    runtime.post([owned] { FAIL(); });
    runtime.call_after(1h, [owned] { FAIL(); });
    owned.reset();
    EXPECT_FALSE(weak.expired());
  }
  EXPECT_TRUE(weak.expired());
}

}  // namespace
}  // namespace swarmline
