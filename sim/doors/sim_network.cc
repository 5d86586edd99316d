#include "sim/doors/sim_network.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "sim/doors/sim_connection.h"
#include "sim/doors/sim_node_network.h"
#include "sim/doors/sim_wire.h"

namespace swarmline {
namespace {

SimRoute reversed(SimRoute route) {
  return {route.second, route.first};
}

std::vector<std::shared_ptr<SimConnection>> ends_where(
    const SimWire& wire, const std::function<bool(const SimConnection&)>& wanted) {
  std::vector<std::shared_ptr<SimConnection>> found;
  for (const auto& [id, end] : wire.ends) {
    if (wanted(*end)) found.push_back(end);
  }
  return found;
}

}  // namespace

SimNetwork::SimNetwork(SimRuntime& runtime, SimNetworkOptions options)
    : wire_(std::make_shared<SimWire>(runtime, options)) {}

SimNetwork::~SimNetwork() {
  // Connections hold the wire, and the wire holds them: part them, without callbacks.
  wire_->listeners.clear();
  for (const auto& end : ends_where(*wire_, [](const SimConnection&) { return true; }))
    end->abandon();
  std::exchange(wire_->waiting,
                {});  // what a blocked direction holds back, the last words included
}

Network& SimNetwork::node(SimNodeId node) {
  std::unique_ptr<SimNodeNetwork>& made = nodes_[node];
  if (!made) made = std::make_unique<SimNodeNetwork>(wire_, node);
  return *made;
}

void SimNetwork::set_link(SimNodeId from, SimNodeId to, SimLink link) {
  wire_->links.insert_or_assign({from, to}, link);
}
void SimNetwork::set_card(SimNodeId node, SimCard card) {
  SWARMLINE_CHECK(card.up_bytes_per_second > 0 && card.down_bytes_per_second > 0);
  wire_->cards[node] = {.rates = card, .up = {}, .down = {}};
}
void SimNetwork::set_filter(Filter filter) {
  wire_->filter = std::move(filter);
}
void SimNetwork::set_tap(Tap tap) {
  wire_->tap = std::move(tap);
}

std::size_t SimNetwork::release(SimNodeId from, SimNodeId to) {
  std::size_t released = 0;
  const auto wanted = [&](const SimConnection& end) { return end.route() == SimRoute{from, to}; };
  for (const auto& end : ends_where(*wire_, wanted)) released += end->release();
  return released;
}

void SimNetwork::kill(SimNodeId node) {
  wire_->runtime.kill(node);
  std::erase_if(wire_->listeners, [&](const auto& entry) { return entry.second.node == node; });
  const auto wanted = [&](const SimConnection& end) { return end.route().first == node; };
  for (const auto& end : ends_where(*wire_, wanted)) end->abandon();
}

void SimNetwork::cut(SimNodeId a, SimNodeId b) {
  wire_->hurts({a, b});
  const auto wanted = [&](const SimConnection& end) { return end.route() == SimRoute{a, b}; };
  for (const auto& end : ends_where(*wire_, wanted))
    end->break_off({ErrorCode::kPeerGone, "the link was cut"});
}

void SimNetwork::damage(SimNodeId node, double share) {
  wire_->runtime.hurts(node);
  if (share > 0)
    wire_->damaged[node] = share;
  else
    wire_->damaged.erase(node);
}

void SimNetwork::power_off(SimNodeId node) {
  wire_->runtime.kill(node);
  wire_->dark.insert(node);
  for (const auto& [port, listener] : wire_->listeners)
    if (listener.node == node) wire_->dark_ports[port] = node;
  std::erase_if(wire_->listeners, [&](const auto& entry) { return entry.second.node == node; });
  const auto wanted = [&](const SimConnection& end) { return end.route().first == node; };
  for (const auto& end : ends_where(*wire_, wanted)) end->lose_power();
  unheard(node);
}

void SimNetwork::power_on(SimNodeId node) {
  if (wire_->dark.erase(node) == 0) return;
  std::erase_if(wire_->dark_ports, [&](const auto& entry) { return entry.second == node; });
  reopened(node);
}

void SimNetwork::forget(SimNodeId node) {
  const auto of_node = [node](const auto& entry) {
    return entry.first.first == node || entry.first.second == node;
  };
  std::erase_if(wire_->delivered, of_node);
  std::erase_if(wire_->link_free_at, of_node);
  wire_->cards.erase(node);
  wire_->guards.erase(node);
}

void SimNetwork::half_open(SimNodeId from, SimNodeId to, bool both) {
  wire_->hurts({from, to});
  const auto wanted = [&](const SimConnection& end) {
    return end.route() == SimRoute{from, to} || (both && end.route() == SimRoute{to, from});
  };
  for (const auto& end : ends_where(*wire_, wanted)) end->vanish();
  unheard(from);
}

void SimNetwork::block(SimNodeId from, SimNodeId to) {
  wire_->hurts({from, to});
  wire_->blocked.insert({from, to});
  unheard(from);
}

void SimNetwork::unblock(SimNodeId from, SimNodeId to) {
  if (wire_->blocked.erase({from, to}) > 0) reopened({from, to});
}

void SimNetwork::silence(SimNodeId node, bool mute, bool deaf) {
  wire_->runtime.hurts(node);
  if (mute) wire_->mute.insert(node);
  if (deaf) wire_->deaf.insert(node);
  unheard(node);
}

void SimNetwork::unsilence(SimNodeId node) {
  if (wire_->mute.erase(node) + wire_->deaf.erase(node) > 0) reopened(node);
}

void SimNetwork::fill(SimNodeId node, bool full) {
  wire_->runtime.hurts(node);
  if (full) {
    wire_->full.insert(node);
  } else if (wire_->full.erase(node) > 0) {
    reopened(node);
  }
}

void SimNetwork::set_guard(SimNodeId node, std::shared_ptr<LinkGuard> guard) {
  wire_->guards.erase(node);
  if (guard) wire_->guards.emplace(node, std::move(guard));
}

void SimNetwork::stall_handshakes(SimNodeId node, bool stalled) {
  wire_->runtime.hurts(node);
  if (stalled) {
    wire_->speechless.insert(node);
  } else {
    wire_->speechless.erase(node);
  }
}

void SimNetwork::set_door(SimNodeId node, SimDoor door) {
  wire_->doors.erase(node);
  if (door != SimDoor::kOpen) wire_->doors.emplace(node, door);
}

bool SimNetwork::is_open() const {
  return wire_->blocked.empty() && wire_->mute.empty() && wire_->deaf.empty() &&
         wire_->dark.empty() && wire_->full.empty();
}

// The node's connections whose other end can't be heard any more begin to find out.
void SimNetwork::unheard(SimNodeId node) {
  const auto wanted = [&](const SimConnection& end) {
    return end.route().first == node || end.route().second == node;
  };
  for (const auto& end : ends_where(*wire_, wanted)) end->unheard();
}

void SimNetwork::reopened(SimRoute route) {
  EndsByRoute ends;
  for (const auto& [id, end] : wire_->ends)
    if (end->route() == route || end->route() == reversed(route)) ends[end->route()].push_back(end);
  reopened(route, ends);
}

// What waited goes, unless something else is in its way; acknowledgements come again.
void SimNetwork::reopened(SimRoute route, EndsByRoute& ends) {
  for (const auto& end : ends[route]) end->acknowledged();
  for (const auto& end : ends[route]) end->flush();
  for (const auto& end : ends[reversed(route)]) end->acknowledged();
  if (wire_->is_blocked(route)) return;
  const auto entry = wire_->waiting.extract(route);
  if (entry.empty()) return;
  for (const std::function<void()>& fn : entry.mapped()) fn();
}

void SimNetwork::reopened(SimNodeId node) {
  const auto of_node = [node](SimRoute route) {
    return route.first == node || route.second == node;
  };
  std::set<SimRoute> routes;
  EndsByRoute ends;
  for (const auto& [id, end] : wire_->ends) {
    if (!of_node(end->route())) continue;
    routes.insert(end->route());
    ends[end->route()].push_back(end);
  }
  for (const auto& [route, waits] : wire_->waiting)
    if (of_node(route)) routes.insert(route);
  for (const SimRoute route : routes) reopened(route, ends);
}

SimNetwork::Counters SimNetwork::delivered(SimNodeId from, SimNodeId to) const {
  const auto found = wire_->delivered.find({from, to});
  return found == wire_->delivered.end() ? Counters{}
                                         : Counters{found->second->frames, found->second->bytes};
}

SimNetwork::Counters SimNetwork::delivered_total() const {
  Counters total;
  for (const auto& [pair, counters] : wire_->delivered) {
    total.frames += counters->frames;
    total.bytes += counters->bytes;
  }
  return total;
}

}  // namespace swarmline
