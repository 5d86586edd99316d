#include "engine/runtime/timer_queue.h"

#include <utility>

#include "engine/base/check.h"

namespace swarmline {

TimerId TimerQueue::add(Instant when, std::function<void()> fn) {
  const TimerId id{++last_};
  timers_.emplace(Key{when, id.value}, std::move(fn));
  when_.emplace(id.value, when);
  return id;
}

void TimerQueue::cancel(TimerId id) {
  const auto found = when_.find(id.value);
  if (found == when_.end()) return;
  const Key key{found->second, id.value};
  when_.erase(found);
  // The function may own what cancels other timers when it dies: take it out of the map first.
  auto node = timers_.extract(key);
}

Instant TimerQueue::next_due() const {
  SWARMLINE_CHECK(!timers_.empty());
  return timers_.begin()->first.when;
}

TimerId TimerQueue::next_id() const {
  SWARMLINE_CHECK(!timers_.empty());
  return TimerId{timers_.begin()->first.number};
}

TimerQueue::Due TimerQueue::pop() {
  SWARMLINE_CHECK(!timers_.empty());
  auto node = timers_.extract(timers_.begin());
  when_.erase(node.key().number);
  return {TimerId{node.key().number}, node.key().when, std::move(node.mapped())};
}

}  // namespace swarmline
