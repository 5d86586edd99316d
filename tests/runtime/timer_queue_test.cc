#include "engine/runtime/timer_queue.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace swarmline {
namespace {

Instant at(std::int64_t ns) {
  return Instant(Duration(ns));
}

// Against a list that is searched: random sets, cancels and pops.
TEST(TimerQueue, BehavesAsASortedList) {
  struct Entry {
    Instant when;
    std::uint64_t id;
    auto operator<=>(const Entry&) const = default;
  };
  Rng rng(11);
  TimerQueue queue;
  std::vector<Entry> model;
  for (int round = 0; round < 20'000; ++round) {
    const auto action = rng.below(10);
    if (action < 5) {
      const Instant when = at(static_cast<std::int64_t>(rng.below(40)));
      model.push_back({when, queue.add(when, [] {}).value});
    } else if (action < 7) {
      const std::uint64_t id = rng.below(queue.last_added().value + 2);  // often long gone
      queue.cancel(TimerId{id});
      std::erase_if(model, [id](const Entry& entry) { return entry.id == id; });
    } else if (!model.empty()) {
      const auto first = std::ranges::min_element(model);
      EXPECT_EQ(queue.next_due(), first->when);
      EXPECT_EQ(queue.next_id().value, first->id);
      const TimerQueue::Due due = queue.pop();
      EXPECT_EQ(due.when, first->when);
      EXPECT_EQ(due.id.value, first->id);
      model.erase(first);
    }
    ASSERT_EQ(queue.size(), model.size());
    ASSERT_EQ(queue.empty(), model.empty());
  }
}

TEST(TimerQueue, AFunctionThatCancelsAsItDiesIsSafe) {
  TimerQueue queue;
  struct Guard {
    TimerQueue& queue;
    TimerId other;
    ~Guard() { queue.cancel(other); }
  };
  const TimerId other = queue.add(at(2), [] {});
  const TimerId guarded = queue.add(at(1), [guard = std::make_shared<Guard>(queue, other)] {});
  queue.cancel(guarded);
  EXPECT_TRUE(queue.empty());
}

TEST(TimerQueue, PoppingAnEmptyQueueIsAProgrammersError) {
  TimerQueue queue;
  EXPECT_DEATH((void)queue.pop(), "empty");
}

}  // namespace
}  // namespace swarmline
