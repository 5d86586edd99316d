#include <string>
#include <vector>

#include "tests/contract/world.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class RuntimeContract : public BackendTest {
 protected:
  Runtime& runtime() { return world_->runtime(0); }
  std::string ran_;
};

TEST_P(RuntimeContract, CallbacksNeverRunInsideTheCallThatRegistersThem) {
  runtime().post([this] { ran_ += 'p'; });
  runtime().call_at(runtime().now() - 1s, [this] { ran_ += 't'; });
  EXPECT_EQ(ran_, "");
  EXPECT_TRUE(world_->run_until([this] { return ran_.size() == 2; }, 5s));
}

TEST_P(RuntimeContract, PostedFunctionsRunInOrderEvenWhenPostedFromOne) {
  runtime().post([this] {
    ran_ += 'a';
    runtime().post([this] { ran_ += 'c'; });
    ran_ += 'A';
  });
  runtime().post([this] { ran_ += 'b'; });
  EXPECT_TRUE(world_->run_until([this] { return ran_.size() == 4; }, 5s));
  EXPECT_EQ(ran_, "aAbc");
}

TEST_P(RuntimeContract, TimersRunByInstantThenInTheOrderTheyWereSet) {
  const Instant start = runtime().now();
  runtime().call_at(start + 20ms, [this] { ran_ += 'c'; });
  runtime().call_at(start + 10ms, [this] { ran_ += 'a'; });
  runtime().call_at(start + 20ms, [this] { ran_ += 'd'; });
  runtime().call_at(start + 10ms, [this] { ran_ += 'b'; });
  EXPECT_TRUE(world_->run_until([this] { return ran_.size() == 4; }, 5s));
  EXPECT_EQ(ran_, "abcd");
}

TEST_P(RuntimeContract, ATimerIsNeverEarlyAndTimeNeverGoesBack) {
  const Instant due = runtime().now() + 15ms;
  Instant fired, before = runtime().now();
  bool monotonic = true;
  const std::function<void()> look = [&] {
    monotonic = monotonic && runtime().now() >= before;
    before = runtime().now();
    if (fired == Instant{}) runtime().call_after(1ms, look);
  };
  look();
  runtime().call_at(due, [&] { fired = runtime().now(); });
  EXPECT_TRUE(world_->run_until([&] { return fired != Instant{}; }, 5s));
  EXPECT_GE(fired, due);
  EXPECT_TRUE(monotonic);
  world_->run_for(5ms);
}

TEST_P(RuntimeContract, ACancelledTimerDoesNotFire) {
  const Instant due = runtime().now() + 5ms;
  TimerId third;
  const TimerId first = runtime().call_at(due, [this] { ran_ += '1'; });
  runtime().call_at(due, [&] {
    ran_ += '2';
    runtime().cancel(third);  // due at this very instant
  });
  third = runtime().call_at(due, [this] { ran_ += '3'; });
  runtime().call_at(due, [this] { ran_ += '4'; });
  runtime().cancel(first);
  EXPECT_TRUE(world_->run_until([this] { return ran_.ends_with('4'); }, 5s));
  EXPECT_EQ(ran_, "24");
}

TEST_P(RuntimeContract, CancellingNothingAFiredTimerOrTwiceHasNoEffect) {
  const TimerId fired = runtime().call_after(1ms, [this] { ran_ += 'a'; });
  EXPECT_TRUE(world_->run_until([this] { return ran_ == "a"; }, 5s));
  const TimerId live = runtime().call_after(5ms, [this] { ran_ += 'b'; });
  const TimerId cancelled = runtime().call_after(2ms, [this] { ran_ += 'x'; });
  runtime().cancel(TimerId{});
  runtime().cancel(fired);
  runtime().cancel(cancelled);
  runtime().cancel(cancelled);
  EXPECT_NE(live, fired);
  EXPECT_TRUE(world_->run_until([this] { return ran_ == "ab"; }, 5s));
}

TEST_P(RuntimeContract, ATimerMaySetAndCancelItsSuccessor) {
  int ticks = 0;
  std::function<void()> tick = [&] {
    const TimerId dropped = runtime().call_after(0ms, [this] { ran_ += 'x'; });
    runtime().cancel(dropped);
    if (++ticks < 50) runtime().call_after(0ms, tick);
  };
  runtime().call_after(0ms, tick);
  EXPECT_TRUE(world_->run_until([&] { return ticks == 50; }, 5s));
  EXPECT_EQ(ran_, "");
}

TEST_P(RuntimeContract, ATimerThatReArmsItselfAtOnceLetsPostsThrough) {
  bool posted = false;
  std::function<void()> spin = [&] {
    if (!posted) runtime().call_after(0ms, spin);
  };
  runtime().call_after(0ms, spin);
  runtime().call_after(1ms, [&] { runtime().post([&] { posted = true; }); });
  // Virtual time stands still while the timer spins, so only real time gets past it.
  if (GetParam() == Backend::kSim) {
    runtime().post([&] { posted = true; });
  }
  EXPECT_TRUE(world_->run_until([&] { return posted; }, 5s));
}

TEST_P(RuntimeContract, WallTimeIsAfter2025AndAdvances) {
  const double before = runtime().wall_seconds();
  EXPECT_GT(before, 1.73e9);
  bool done = false;
  runtime().call_after(20ms, [&] { done = true; });
  EXPECT_TRUE(world_->run_until([&] { return done; }, 5s));
  EXPECT_GT(runtime().wall_seconds(), before);
}

SWARMLINE_FOR_EVERY_BACKEND(RuntimeContract);

}  // namespace
}  // namespace swarmline
