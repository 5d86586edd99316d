// Functions ordered by (instant, order of adding). Both runtimes keep their timers in one.
//   Thread:  one thread at a time.
//   Errors:  none. Cancelling an unknown or fired timer has no effect.
//   Bounds:  holds what its users set; each timer is one map node.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <unordered_map>

#include "engine/base/units.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

class TimerQueue {
 public:
  struct Due {
    TimerId id;
    Instant when;
    std::function<void()> fn;
  };

  TimerId add(Instant when, std::function<void()> fn);
  void cancel(TimerId id);
  bool empty() const { return timers_.empty(); }
  std::size_t size() const { return timers_.size(); }
  Instant next_due() const;  // not empty
  TimerId next_id() const;   // not empty
  TimerId last_added() const { return TimerId{last_}; }
  Due pop();  // not empty

 private:
  struct Key {
    Instant when;
    std::uint64_t number;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, std::function<void()>> timers_;
  std::unordered_map<std::uint64_t, Instant> when_;  // looked up by id, never iterated
  std::uint64_t last_ = 0;
};

}  // namespace swarmline
