// Checkpoint-restart, whole-model replicas and machines on demand: baselines.h.
#include <algorithm>
#include <set>

#include "base/check.h"
#include "sim/fleet/baselines.h"

namespace swarmline {
namespace {

// Machines in the order in which they came; the first of them are used.
class Machines {
 public:
  // How many of those used were lost.
  std::size_t apply(const FleetEvent& event) {
    std::size_t lost = 0;
    for (const std::uint32_t node : event.removed) {
      lost += used_.erase(node);
      std::erase(there_, node);
    }
    there_.insert(there_.end(), event.added.begin(), event.added.end());
    return lost;
  }
  void use(std::size_t count) {
    used_ = {there_.begin(), there_.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  std::size_t count() const { return there_.size(); }

 private:
  std::vector<std::uint32_t> there_;
  std::set<std::uint32_t> used_;
};

}  // namespace

std::vector<WorkSpan> restart_timeline(const Fleet& usable, const RestartJob& job) {
  SWARMLINE_CHECK(usable.names_nodes && job.stages > 0);
  WorkTimeline timeline;
  Machines machines;
  std::size_t pipelines = 0;
  double restarted_at = 0;  // who comes before that is taken in without another restart
  for (const FleetEvent& event : usable.events) {
    timeline.advance(event.seconds);
    const bool lost = machines.apply(event) > 0;
    const std::size_t possible = machines.count() / job.stages;
    const bool restarting = event.seconds < restarted_at || event.seconds == 0;
    const bool grows = possible > pipelines && (job.grows_at_once || restarting || pipelines == 0);
    if (!lost && !grows) continue;
    WorkSpan& now = timeline.now();
    now.rolls_back |= lost && !job.saves_at_notice;
    const bool restarts = possible > 0 && (lost || !restarting);
    now.saves |= lost ? job.saves_at_notice : restarts && pipelines > 0;
    if (restarts) {
      now.stall_seconds = job.restart_seconds;
      restarted_at = event.seconds + job.restart_seconds;
    }
    pipelines = possible;
    now.speed = static_cast<double>(pipelines);
    machines.use(pipelines * job.stages);
  }
  return timeline.finish(usable.seconds);
}

std::vector<WorkSpan> replica_timeline(const Fleet& usable, std::uint32_t machines, bool noticed) {
  SWARMLINE_CHECK(usable.names_nodes && machines > 0);
  WorkTimeline timeline;
  std::vector<std::vector<std::uint32_t>> replicas;
  std::vector<std::uint32_t> waiting;
  for (const FleetEvent& event : usable.events) {
    timeline.advance(event.seconds);
    const std::set<std::uint32_t> gone(event.removed.begin(), event.removed.end());
    const auto is_gone = [&](std::uint32_t node) { return gone.contains(node); };
    const std::size_t before = replicas.size();
    for (const auto& replica : replicas)
      if (std::ranges::any_of(replica, is_gone))
        waiting.insert(waiting.end(), replica.begin(), replica.end());
    std::erase_if(replicas,
                  [&](const auto& replica) { return std::ranges::any_of(replica, is_gone); });
    std::erase_if(waiting, is_gone);
    WorkSpan& now = timeline.now();
    if (replicas.size() < before) {
      now.rolls_back = replicas.empty();
      now.steps_again = noticed ? 0 : 0.5;
      now.stall_seconds = noticed ? 0 : kReplicaHeartbeatSeconds;
    }
    waiting.insert(waiting.end(), event.added.begin(), event.added.end());
    for (; waiting.size() >= machines; waiting.erase(waiting.begin(), waiting.begin() + machines))
      replicas.emplace_back(waiting.begin(), waiting.begin() + machines);
    now.speed = static_cast<double>(replicas.size());
  }
  return timeline.finish(usable.seconds);
}

std::vector<WorkSpan> steady_timeline(double seconds, std::uint32_t peers_a_stage) {
  return {{.seconds = seconds, .speed = static_cast<double>(peers_a_stage)}};
}

}  // namespace swarmline
