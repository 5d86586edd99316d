// Callbacks that may outlive the object they call: a wrapped one does nothing once its guard is
// gone.
//   What:      `timer = runtime.call_after(wait, guard_.wrap([this] { on_deadline(); }));`
//   Ownership: a member of the object, declared last, so that it goes first. A wrapped callback
//              holds a few bytes of the guard, never the object.
//   Thread:    the object's own. Other threads may copy and destroy a wrapped callback, not call
//              it.
//   Errors:    none; a call that comes too late is dropped.
#pragma once

#include <memory>
#include <utility>

namespace swarmline {

class CallbackGuard {
 public:
  CallbackGuard() : alive_(std::make_shared<const char>('\0')) {}
  CallbackGuard(const CallbackGuard&) = delete;
  CallbackGuard& operator=(const CallbackGuard&) = delete;

  // `callback` returns nothing. It may destroy the object.
  template <typename Callback>
  auto wrap(Callback callback) const {
    return [alive = std::weak_ptr<const char>(alive_),
            callback = std::move(callback)](auto&&... values) mutable {
      if (!alive.expired()) callback(std::forward<decltype(values)>(values)...);
    };
  }
  // Callbacks wrapped so far do nothing from now on.
  void drop_callbacks() { alive_ = std::make_shared<const char>('\0'); }
  // Whether the object is still there, for one that calls out and may be destroyed by it.
  std::weak_ptr<const char> watch() const { return alive_; }

 private:
  std::shared_ptr<const char> alive_;
};

}  // namespace swarmline
