#include "sim/doors/sim_runtime.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"

namespace swarmline {
namespace {

// Not zero, so that an Instant that was never set looks old and not like the start.
constexpr Instant kSimStart = Instant(std::chrono::seconds(1));
constexpr double kSimStartWallSeconds = 1'767'225'600;  // 2026-01-01T00:00:00Z

// An event's tag in the queue.
std::uint64_t tag_of(SimNodeId node, SimEventSource source) {
  return std::uint64_t{source} << 32 | node;
}
SimNodeId node_in(std::uint64_t tag) {
  return static_cast<SimNodeId>(tag);
}
SimEventSource source_in(std::uint64_t tag) {
  return static_cast<SimEventSource>(tag >> 32);
}

}  // namespace

class SimRuntime::Node final : public Runtime {
 public:
  Node(SimRuntime& world, SimNodeId id) : world_(world), id_(id) {}

  Instant now() const override { return world_.now_; }
  TimerId call_at(Instant when, std::function<void()> fn) override {
    return world_.schedule(id_, when, std::move(fn));
  }
  void cancel(TimerId id) override { world_.cancel(id); }
  void post(std::function<void()> fn) override {
    world_.schedule(id_, world_.now_, std::move(fn), kSimPosted);
  }
  double wall_seconds() const override {
    return kSimStartWallSeconds + to_seconds(world_.now_ - kSimStart);
  }

  bool alive = true;
  bool frozen = false;
  std::uint64_t hurt = 0;
  std::uint64_t deaths = 0;
  SimWake wake = SimWake::kSocketsFirst;
  TimerId revived;                  // events up to that one were its predecessor's
  std::vector<std::uint64_t> held;  // events that came due while frozen, as they did

 private:
  SimRuntime& world_;
  SimNodeId id_;
};

SimRuntime::SimRuntime(std::uint64_t seed) : seed_(seed), now_(kSimStart) {}
SimRuntime::~SimRuntime() = default;

Runtime& SimRuntime::node(SimNodeId node) {
  return made(node);
}

SimRuntime::Node& SimRuntime::made(SimNodeId node) {
  std::unique_ptr<Node>& at = nodes_[node];
  if (!at) at = std::make_unique<Node>(*this, node);
  return *at;
}

TimerId SimRuntime::schedule(SimNodeId node, Instant when, std::function<void()> fn,
                             SimEventSource source) {
  return queue_.add(std::max(when, now_), std::move(fn), tag_of(node, source));
}

void SimRuntime::cancel(TimerId id) {
  // The function may own what cancels other timers when it dies: take it out of the map first.
  if (const auto held = held_.extract(id.value); held.empty()) queue_.cancel(id);
}

void SimRuntime::deliver(TimerQueue::Due due) {
  const SimNodeId node = node_in(due.tag);
  Node& at = made(node);
  if (!at.alive || due.id.value <= at.revived.value) return;
  if (at.frozen) {
    at.held.push_back(due.id.value);
    held_.emplace(due.id.value, Held{node, source_in(due.tag), std::move(due.fn)});
    return;
  }
  hash_.add(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
  hash_.add(node);
  ++events_;
  due.fn();
}

void SimRuntime::deliver_held(std::uint64_t event) {
  const auto held = held_.extract(event);
  if (!held.empty()) held.mapped().fn();
}

bool SimRuntime::step() {
  if (queue_.empty()) return false;
  TimerQueue::Due due = queue_.pop();
  SWARMLINE_CHECK(due.when >= now_);
  events_at_this_instant_ = due.when == now_ ? events_at_this_instant_ + 1 : 0;
  SWARMLINE_CHECK_MSG(events_at_this_instant_ < kEventsAtOneInstantMax,
                      std::string("virtual time stands still: some node posts for ever"));
  now_ = due.when;
  deliver(std::move(due));
  return true;
}

bool SimRuntime::run_until(const std::function<bool()>& done, Duration limit) {
  const Instant end = now_ + limit;
  while (!done()) {
    if (queue_.empty() || queue_.next_due() > end) return false;
    step();
  }
  return true;
}

void SimRuntime::run_for(Duration time) {
  const Instant end = now_ + time;
  while (!queue_.empty() && queue_.next_due() <= end) step();
  now_ = end;
}

void SimRuntime::hurts(SimNodeId node) {
  ++made(node).hurt;
}

std::uint64_t SimRuntime::hurt(SimNodeId node) const {
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? 0 : found->second->hurt;
}

void SimRuntime::kill(SimNodeId node) {
  Node& at = made(node);
  ++at.hurt;
  ++at.deaths;
  if (std::exchange(at.frozen, false)) --frozen_;
  at.alive = false;
  at.held.clear();
  std::erase_if(held_, [node](const auto& held) { return held.second.node == node; });
}

void SimRuntime::revive(SimNodeId node) {
  Node& at = made(node);
  SWARMLINE_CHECK(!at.alive);
  at.alive = true;
  at.frozen = false;
  at.revived = queue_.last_added();
}

void SimRuntime::freeze(SimNodeId node, SimWake wake) {
  Node& at = made(node);
  ++at.hurt;
  if (!std::exchange(at.frozen, true)) ++frozen_;
  at.wake = wake;
}

void SimRuntime::thaw(SimNodeId node) {
  Node& at = made(node);
  if (!std::exchange(at.frozen, false)) return;
  --frozen_;
  // As the reactor does: first what was posted before; then the sockets that are readable, in the
  // order in which they became so, each until it is empty; then the one timer that stands for all.
  std::map<SimEventSource, std::size_t> places{{kSimPosted, 0}};
  std::map<std::size_t, std::vector<std::uint64_t>> turns;
  std::vector<std::uint64_t> timers, ends;
  for (const std::uint64_t event : std::exchange(at.held, {})) {
    const auto held = held_.find(event);
    if (held == held_.end()) continue;  // cancelled
    const SimEventSource source = held->second.source;
    const SimEventSource socket = source & ~kSimSocketEnd;
    if (source == kSimTimer) {
      timers.push_back(event);
    } else if (source != socket && places.contains(socket)) {
      ends.push_back(event);  // a read that finds bytes does not see yet that none will follow
    } else {
      turns[places.emplace(socket, places.size()).first->second].push_back(event);
    }
  }
  // Scheduled now, hence before whatever the node schedules from here on.
  const auto take_turn = [&](std::uint64_t event) {
    schedule(node, now_, [this, event] { deliver_held(event); }, held_.at(event).source);
  };
  if (at.wake == SimWake::kTimersFirst) std::ranges::for_each(timers, take_turn);
  for (const auto& [place, events] : turns) std::ranges::for_each(events, take_turn);
  if (at.wake == SimWake::kSocketsFirst) std::ranges::for_each(timers, take_turn);
  if (ends.empty()) return;
  // The reactor's next round.
  schedule(node, now_, [this, node, ends] {
    for (const std::uint64_t event : ends)
      schedule(node, now_, [this, event] { deliver_held(event); }, held_.at(event).source);
  });
}

bool SimRuntime::is_alive(SimNodeId node) const {
  const auto found = nodes_.find(node);
  return found == nodes_.end() || found->second->alive;
}

std::uint64_t SimRuntime::deaths(SimNodeId node) const {
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? 0 : found->second->deaths;
}

bool SimRuntime::is_frozen(SimNodeId node) const {
  const auto found = nodes_.find(node);
  return found != nodes_.end() && found->second->frozen;
}

}  // namespace swarmline
