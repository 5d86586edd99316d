#include "sim/fleet/rented_fleet.h"

#include <algorithm>
#include <map>
#include <vector>

#include "base/check.h"
#include "base/rng.h"

namespace swarmline {
namespace {

Fleet without_events(const Fleet& fleet) {
  Fleet result = fleet;
  result.names_nodes = true;
  result.events.clear();
  return result;
}

// Events that change something are kept, at their instant.
void add_event(Fleet& fleet, FleetEvent event, std::uint32_t alive) {
  if (event.added.empty() && event.removed.empty()) return;
  event.count = alive;
  fleet.events.push_back(std::move(event));
}

std::uint32_t nodes_of(const Fleet& fleet) {
  std::uint32_t nodes = 0;
  for (const FleetEvent& event : fleet.events)
    for (const std::uint32_t node : event.added) nodes = std::max(nodes, node + 1);
  return nodes;
}

}  // namespace

Fleet named_fleet(const Fleet& fleet, std::uint64_t seed) {
  if (fleet.names_nodes) return fleet;
  Fleet named = without_events(fleet);
  Rng leavers = Rng(seed).split("leavers");
  std::vector<std::uint32_t> alive;
  std::uint32_t next = 0;
  for (const FleetEvent& counted : fleet.events) {
    FleetEvent event{.seconds = counted.seconds, .added = {}, .removed = {}};
    while (alive.size() > counted.count) {
      const auto victim = alive.begin() + static_cast<std::ptrdiff_t>(leavers.below(alive.size()));
      event.removed.push_back(*victim);
      alive.erase(victim);
    }
    while (alive.size() < counted.count) {
      event.added.push_back(next);
      alive.push_back(next++);
    }
    add_event(named, std::move(event), counted.count);
  }
  return named;
}

Fleet rented_fleet(const Fleet& fleet, std::uint32_t most) {
  SWARMLINE_CHECK(fleet.names_nodes);
  Fleet rented = without_events(fleet);
  std::vector<std::uint32_t> taken, others;  // who was there first is first
  for (const FleetEvent& seen : fleet.events) {
    FleetEvent event{.seconds = seen.seconds, .added = {}, .removed = {}};
    for (const std::uint32_t node : seen.removed) {
      if (std::erase(taken, node) > 0) event.removed.push_back(node);
      std::erase(others, node);
    }
    others.insert(others.end(), seen.added.begin(), seen.added.end());
    while (taken.size() < most && !others.empty()) {
      event.added.push_back(others.front());
      taken.push_back(others.front());
      others.erase(others.begin());
    }
    add_event(rented, std::move(event), static_cast<std::uint32_t>(taken.size()));
  }
  return rented;
}

Fleet with_safe_machines(const Fleet& fleet, std::uint32_t machines) {
  SWARMLINE_CHECK(fleet.names_nodes);
  Fleet result = fleet;
  if (machines == 0) return result;
  if (result.events.empty() || result.events.front().seconds > 0)
    result.events.insert(result.events.begin(), FleetEvent{});
  const std::uint32_t first = nodes_of(fleet);
  auto& added = result.events.front().added;
  for (std::uint32_t i = machines; i > 0; --i) added.insert(added.begin(), first + i - 1);
  for (FleetEvent& event : result.events) event.count += machines;
  return result;
}

std::uint32_t first_safe_node(const Fleet& fleet, std::uint32_t machines) {
  return nodes_of(fleet) - machines;
}

Fleet usable_fleet(const Fleet& fleet, double join_seconds) {
  SWARMLINE_CHECK(fleet.names_nodes);
  std::map<std::uint32_t, double> joining;  // node -> since when it can be used
  std::map<double, FleetEvent> events;
  for (const FleetEvent& seen : fleet.events) {
    for (const std::uint32_t node : seen.removed) {
      const double from = joining.at(node);
      joining.erase(node);
      if (from < seen.seconds) {
        events[seen.seconds].removed.push_back(node);
      } else {
        std::erase(events[from].added, node);
      }
    }
    for (const std::uint32_t node : seen.added) {
      const double from = seen.seconds > 0 ? seen.seconds + join_seconds : 0;
      joining[node] = from;
      events[from].added.push_back(node);
    }
  }
  Fleet usable = without_events(fleet);
  std::uint32_t alive = 0;
  for (auto& [seconds, event] : events) {
    if (seconds > fleet.seconds) break;
    event.seconds = seconds;
    alive += static_cast<std::uint32_t>(event.added.size());
    alive -= static_cast<std::uint32_t>(event.removed.size());
    add_event(usable, std::move(event), alive);
  }
  return usable;
}

double machine_seconds(const Fleet& fleet) {
  double sum = 0;
  for (std::size_t i = 0; i < fleet.events.size(); ++i) {
    const double end = i + 1 < fleet.events.size() ? fleet.events[i + 1].seconds : fleet.seconds;
    sum += fleet.events[i].count * (end - fleet.events[i].seconds);
  }
  return sum;
}

std::uint64_t loss_instants(const Fleet& fleet) {
  SWARMLINE_CHECK(fleet.names_nodes);
  return static_cast<std::uint64_t>(std::ranges::count_if(
      fleet.events, [](const FleetEvent& event) { return !event.removed.empty(); }));
}

}  // namespace swarmline
