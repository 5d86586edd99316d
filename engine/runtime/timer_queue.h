// Functions ordered by (instant, order of adding). Both runtimes keep their timers in one.
//   Thread:  one thread at a time.
//   Errors:  none. Cancelling an unknown or fired timer has no effect.
//   Bounds:  holds what its users set; a cancelled timer's function goes at once, its 16 bytes when
//            it would have been due.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "base/units.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

class TimerQueue {
 public:
  struct Due {
    TimerId id;
    Instant when;
    std::uint64_t tag = 0;
    std::function<void()> fn;
  };

  // `tag`: the caller's, given back with the function.
  TimerId add(Instant when, std::function<void()> fn, std::uint64_t tag = 0);
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
  struct Timer {
    std::uint64_t tag;
    std::function<void()> fn;
  };
  void drop_cancelled();  // from the front

  std::vector<Key> heap_;                            // the least is first
  std::unordered_map<std::uint64_t, Timer> timers_;  // looked up by number, never iterated
  std::uint64_t last_ = 0;
};

}  // namespace swarmline
