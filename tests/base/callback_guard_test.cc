#include "base/callback_guard.h"

#include <functional>
#include <memory>

#include <gtest/gtest.h>

namespace swarmline {
namespace {

struct Counter {
  int count = 0;
  CallbackGuard guard;
  std::function<void(int)> callback() {
    return guard.wrap([this](int by) { count += by; });
  }
};

TEST(CallbackGuard, CallsWhatLives) {
  Counter counter;
  counter.callback()(3);
  EXPECT_EQ(counter.count, 3);
}

TEST(CallbackGuard, DropsCallsThatComeTooLate) {
  bool called = false;
  std::function<void()> late;
  {
    CallbackGuard guard;
    late = guard.wrap([&] { called = true; });
  }
  late();
  EXPECT_FALSE(called);
}

TEST(CallbackGuard, DropsWhatWasWrappedBeforeAndCallsWhatComesAfter) {
  Counter counter;
  const auto before = counter.callback();
  counter.guard.drop_callbacks();
  before(1);
  EXPECT_EQ(counter.count, 0);
  counter.callback()(1);
  EXPECT_EQ(counter.count, 1);
}

TEST(CallbackGuard, ACallbackMayDestroyItsObject) {
  auto counter = std::make_unique<Counter>();
  const auto watch = counter->guard.watch();
  const std::function<void()> end = counter->guard.wrap([&] { counter.reset(); });
  end();
  EXPECT_TRUE(watch.expired());
  end();
}

}  // namespace
}  // namespace swarmline
