#include "engine/runtime/timer_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace swarmline {

TimerId TimerQueue::add(Instant when, std::function<void()> fn, std::uint64_t tag) {
  const TimerId id{++last_};
  timers_.emplace(id.value, Timer{tag, std::move(fn)});
  heap_.push_back({when, id.value});
  std::ranges::push_heap(heap_, std::greater());
  return id;
}

void TimerQueue::cancel(TimerId id) {
  // The function may own what cancels other timers when it dies: take it out of the map first.
  const auto node = timers_.extract(id.value);
  if (!node.empty()) drop_cancelled();
}

void TimerQueue::drop_cancelled() {
  while (!heap_.empty() && !timers_.contains(heap_.front().number)) {
    std::ranges::pop_heap(heap_, std::greater());
    heap_.pop_back();
  }
}

Instant TimerQueue::next_due() const {
  SWARMLINE_CHECK(!timers_.empty());
  return heap_.front().when;
}

TimerId TimerQueue::next_id() const {
  SWARMLINE_CHECK(!timers_.empty());
  return TimerId{heap_.front().number};
}

TimerQueue::Due TimerQueue::pop() {
  SWARMLINE_CHECK(!timers_.empty());
  const Key key = heap_.front();
  std::ranges::pop_heap(heap_, std::greater());
  heap_.pop_back();
  auto node = timers_.extract(key.number);
  drop_cancelled();
  return {TimerId{key.number}, key.when, node.mapped().tag, std::move(node.mapped().fn)};
}

}  // namespace swarmline
