// The timers of a coordinator's parts. After each callback the coordinator settles, so a part's
// callback only records what time it is for.
//   Ownership: the runtime outlives it. When it goes, its callbacks do nothing any more.
//   Thread:    control thread.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "base/callback_guard.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

class Alarms {
 public:
  using Callback = std::function<void()>;

  // `settle` follows each callback.
  Alarms(Runtime& runtime, Callback settle) : runtime_(runtime), settle_(std::move(settle)) {}

  Runtime& runtime() { return runtime_; }  // for what keeps timers of its own
  Instant now() const { return runtime_.now(); }
  std::weak_ptr<const char> watch() const { return guard_.watch(); }
  void drop() { guard_.drop_callbacks(); }  // those that are under way do nothing
  // For answers of other doors: the callback, then settle.
  template <typename Function>
  auto then_settle(Function callback) {
    return guard_.wrap([settle = &settle_, watch = guard_.watch(),
                        callback = std::move(callback)](auto&&... values) mutable {
      callback(std::forward<decltype(values)>(values)...);
      if (!watch.expired()) (*settle)();
    });
  }
  TimerId at(Instant when, Callback callback) {
    return runtime_.call_at(when, then_settle(std::move(callback)));
  }
  TimerId after(Duration wait, Callback callback) { return at(now() + wait, std::move(callback)); }
  void cancel(TimerId timer) { runtime_.cancel(timer); }
  // This process was seen to have stood still until now: deadlines begin anew.
  void stood_still() { awake_since_ = now(); }
  Instant awake_since() const { return awake_since_; }
  void post(Callback callback) { runtime_.post(then_settle(std::move(callback))); }

 private:
  Runtime& runtime_;
  Callback settle_;
  CallbackGuard guard_;
  Instant awake_since_{};
};

}  // namespace swarmline
