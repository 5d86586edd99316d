// Virtual time for many nodes on one thread: one queue of events ordered by (instant, order of
// scheduling). Everything a node does is an event of the queue, so a run is a pure function of its
// seed, and its trace hash says so.
//   Ownership: outlives the nodes' logic and the other simulated doors.
//   Thread:    one thread for everything, post() included.
//   Bounds:    run_*() stop at a virtual deadline; a run of kEventsAtOneInstantMax events without
//              time passing is a CHECK.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "base/hash.h"
#include "base/rng.h"
#include "engine/runtime/runtime.h"
#include "engine/runtime/timer_queue.h"

namespace swarmline {

using SimNodeId = std::uint32_t;

class SimRuntime {
 public:
  static constexpr std::uint64_t kEventsAtOneInstantMax = 10'000'000;

  explicit SimRuntime(std::uint64_t seed);
  ~SimRuntime();
  SimRuntime(const SimRuntime&) = delete;
  SimRuntime& operator=(const SimRuntime&) = delete;

  Instant now() const { return now_; }
  // The node's own view: the same object each time. wall_seconds() is virtual as well.
  Runtime& node(SimNodeId node);
  // An independent stream of the run's seed.
  Rng rng(std::string_view name) const { return Rng(seed_).split(name); }

  // Delivers events until `done()` holds (checked after each event), none is left, or `limit` has
  // passed; true when done.
  bool run_until(const std::function<bool()>& done, Duration limit);
  // Delivers everything that is due within `time` and leaves the clock at its end.
  void run_for(Duration time);
  // Delivers one event, whenever it is due; false when none is left.
  bool step();

  // From now on the node's pending and future events are dropped undelivered: the process is gone.
  void kill(SimNodeId node);
  // A process begins anew on that node: what the one before had scheduled stays dropped.
  void revive(SimNodeId node);
  // Its events wait until thaw(), then come at once, in order: the process was stopped (SIGSTOP)
  // and goes on.
  void freeze(SimNodeId node);
  void thaw(SimNodeId node);
  bool is_alive(SimNodeId node) const;
  bool is_frozen(SimNodeId node) const;

  // For the other doors: an event on behalf of `node`, and words about it for the trace.
  TimerId schedule(SimNodeId node, Instant when, std::function<void()> fn);
  void cancel(TimerId id) { queue_.cancel(id); }
  void trace(std::uint64_t word) { hash_.add(word); }

  std::uint64_t trace_hash() const { return hash_.value(); }
  std::uint64_t events() const { return events_; }

 private:
  class Node;

  Node& made(SimNodeId node);
  void deliver(SimNodeId node, TimerId event, std::function<void()> fn);

  std::uint64_t seed_;
  Instant now_;
  TimerQueue queue_;
  RollingHash hash_;
  std::uint64_t events_ = 0;
  std::uint64_t events_at_this_instant_ = 0;
  std::unordered_map<SimNodeId, std::unique_ptr<Node>> nodes_;  // never iterated
};

}  // namespace swarmline
