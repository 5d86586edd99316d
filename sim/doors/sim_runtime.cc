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

}  // namespace

class SimRuntime::Node final : public Runtime {
 public:
  Node(SimRuntime& world, SimNodeId id) : world_(world), id_(id) {}

  Instant now() const override { return world_.now_; }
  TimerId call_at(Instant when, std::function<void()> fn) override {
    return world_.schedule(id_, when, std::move(fn));
  }
  void cancel(TimerId id) override { world_.cancel(id); }
  void post(std::function<void()> fn) override { world_.schedule(id_, world_.now_, std::move(fn)); }
  double wall_seconds() const override {
    return kSimStartWallSeconds + to_seconds(world_.now_ - kSimStart);
  }

  bool alive = true;
  bool frozen = false;
  TimerId revived;                          // events up to that one were its predecessor's
  std::vector<std::function<void()>> held;  // events that came due while frozen

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

TimerId SimRuntime::schedule(SimNodeId node, Instant when, std::function<void()> fn) {
  return queue_.add(std::max(when, now_), std::move(fn), node);
}

void SimRuntime::deliver(SimNodeId node, TimerId event, std::function<void()> fn) {
  Node& at = made(node);
  if (!at.alive || event.value <= at.revived.value) return;
  if (at.frozen) {
    at.held.push_back(std::move(fn));
    return;
  }
  hash_.add(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
  hash_.add(node);
  ++events_;
  fn();
}

bool SimRuntime::step() {
  if (queue_.empty()) return false;
  TimerQueue::Due due = queue_.pop();
  SWARMLINE_CHECK(due.when >= now_);
  events_at_this_instant_ = due.when == now_ ? events_at_this_instant_ + 1 : 0;
  SWARMLINE_CHECK_MSG(events_at_this_instant_ < kEventsAtOneInstantMax,
                      std::string("virtual time stands still: some node posts for ever"));
  now_ = due.when;
  deliver(due.tag, due.id, std::move(due.fn));
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

void SimRuntime::kill(SimNodeId node) {
  Node& at = made(node);
  at.alive = false;
  at.held.clear();
}

void SimRuntime::revive(SimNodeId node) {
  Node& at = made(node);
  SWARMLINE_CHECK(!at.alive);
  at.alive = true;
  at.frozen = false;
  at.revived = queue_.last_added();
}

void SimRuntime::freeze(SimNodeId node) {
  made(node).frozen = true;
}

void SimRuntime::thaw(SimNodeId node) {
  Node& at = made(node);
  if (!at.frozen) return;
  at.frozen = false;
  // Scheduled now, hence before whatever the node schedules from here on.
  for (std::function<void()>& fn : std::exchange(at.held, {})) schedule(node, now_, std::move(fn));
}

bool SimRuntime::is_alive(SimNodeId node) const {
  const auto found = nodes_.find(node);
  return found == nodes_.end() || found->second->alive;
}

bool SimRuntime::is_frozen(SimNodeId node) const {
  const auto found = nodes_.find(node);
  return found != nodes_.end() && found->second->frozen;
}

}  // namespace swarmline
