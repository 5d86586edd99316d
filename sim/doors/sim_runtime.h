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
#include <map>
#include <memory>
#include <unordered_map>

#include "base/hash.h"
#include "base/rng.h"
#include "engine/runtime/runtime.h"
#include "engine/runtime/timer_queue.h"

namespace swarmline {

using SimNodeId = std::uint32_t;

// What wakes a process: decides the order of events that waited while it was stopped.
using SimEventSource = std::uint32_t;
inline constexpr SimEventSource kSimTimer = 0;
inline constexpr SimEventSource kSimPosted = 1;
inline constexpr SimEventSource kSimSocketMin = 2;         // from here on: one of its sockets each
inline constexpr SimEventSource kSimSocketEnd = 1U << 31;  // with a socket's: no more comes there

// What a process that was stopped does first when it goes on.
enum class SimWake : std::uint8_t {
  kSocketsFirst,  // it was stopped as it slept
  kTimersFirst,   // ... between two events, with its timer next: all timers due come at once
};

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
  // Its events wait until thaw(), then come at once: the process was stopped (SIGSTOP) and goes on.
  // They come in the order of the real backends: what it had posted itself; then one connection
  // after another, all that has arrived over it, the one first that something arrived over first;
  // then the timers that are due, but for those that one of the events before has cancelled; then
  // what these have posted (a device's completed jobs are posted), and the ends of connections over
  // which something had arrived.
  void freeze(SimNodeId node, SimWake wake = SimWake::kSocketsFirst);
  void thaw(SimNodeId node);
  std::size_t frozen() const { return frozen_; }  // nodes, the dead ones besides
  // Something was done to the node that one who is well does not meet; freezing and killing count
  // by themselves. How often so far.
  void hurts(SimNodeId node);
  std::uint64_t hurt(SimNodeId node) const;
  bool is_alive(SimNodeId node) const;
  std::uint64_t deaths(SimNodeId node) const;  // of its processes so far
  bool is_frozen(SimNodeId node) const;

  // For the other doors: an event on behalf of `node`, and words about it for the trace.
  TimerId schedule(SimNodeId node, Instant when, std::function<void()> fn,
                   SimEventSource source = kSimTimer);
  void cancel(TimerId id);
  void trace(std::uint64_t word) { hash_.add(word); }

  std::uint64_t trace_hash() const { return hash_.value(); }
  std::uint64_t events() const { return events_; }

 private:
  class Node;
  // An event that came due while its node was frozen.
  struct Held {
    SimNodeId node;
    SimEventSource source;
    std::function<void()> fn;
  };

  Node& made(SimNodeId node);
  void deliver(TimerQueue::Due due);
  void deliver_held(std::uint64_t event);

  std::uint64_t seed_;
  Instant now_;
  TimerQueue queue_;
  std::map<std::uint64_t, Held> held_;  // by the event's number, until delivered or cancelled
  RollingHash hash_;
  std::uint64_t events_ = 0;
  std::uint64_t events_at_this_instant_ = 0;
  std::size_t frozen_ = 0;
  std::unordered_map<SimNodeId, std::unique_ptr<Node>> nodes_;  // never iterated
};

}  // namespace swarmline
