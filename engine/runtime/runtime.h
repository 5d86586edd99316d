// The first door: time and tasks. Logic never reads a clock or starts a thread; it asks a Runtime.
//   Thread:  everything runs on the control thread except post(), which any thread may call.
//   Order:   callbacks never run inside the call that registers them; timers due at one instant
//            fire in the order they were set; posted functions run in the order they were posted.
//   Backends: AsioRuntime (real time), SimRuntime (virtual time).
#pragma once

#include <cstdint>
#include <functional>

#include "base/units.h"

namespace swarmline {

struct TimerId {
  std::uint64_t value = 0;  // 0: no timer
  bool operator==(const TimerId&) const = default;
};

class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual Instant now() const = 0;  // monotonic
  virtual TimerId call_at(Instant when, std::function<void()> fn) = 0;
  virtual void cancel(TimerId id) = 0;  // no effect on 0, on a fired timer or twice
  virtual void post(std::function<void()> fn) = 0;
  // Seconds since 1970: for log lines and file names, and for what other machines say when it
  // expires (invites, seat certificates); for no other decision.
  virtual double wall_seconds() const = 0;

  TimerId call_after(Duration delay, std::function<void()> fn) {
    return call_at(now() + delay, std::move(fn));
  }
};

}  // namespace swarmline
