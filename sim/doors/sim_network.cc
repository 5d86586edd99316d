#include "sim/doors/sim_network.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "sim/doors/sim_connection.h"
#include "sim/doors/sim_wire.h"

namespace swarmline {
namespace {

constexpr std::uint16_t kFirstFreePort = 20'000;

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

class SimNetwork::NodeNetwork final : public Network {
 public:
  NodeNetwork(std::shared_ptr<SimWire> wire, SimNodeId node)
      : wire_(std::move(wire)), node_(node) {}

  Result<Address> listen(const Address& address, Accepted on_accepted) override {
    std::uint16_t port = address.port;
    if (port == 0) port = free_port();
    if (wire_->listeners.contains(port)) {
      return fail(ErrorCode::kIo, fmt::format("cannot listen on sim:{}: it is taken", port));
    }
    wire_->listeners.emplace(port, SimWire::Listener{node_, std::move(on_accepted)});
    return Address{"sim", port};
  }

  void stop_listening() override {
    std::erase_if(wire_->listeners,
                  [this](const auto& entry) { return entry.second.node == node_; });
  }

  void connect(const Address& address, Duration timeout, Connected on_connected) override {
    SimRuntime& runtime = wire_->runtime;
    auto attempt = std::make_shared<Attempt>(
        Attempt{std::move(on_connected), {}, socket_of(++wire_->last_end)});
    attempt->timer = runtime.schedule(node_, runtime.now() + timeout, [attempt, address, timeout] {
      attempt->settle(
          fail(ErrorCode::kDeadline, fmt::format("{} did not answer within {:.3g} s",
                                                 to_string(address), to_seconds(timeout))));
    });
    if (wire_->full.contains(node_)) return find_no_descriptor(attempt, address);
    if (wire_->dark_ports.contains(address.port)) return;  // nobody answers
    const auto listener = wire_->listeners.find(address.port);
    if (listener == wire_->listeners.end()) {
      if (wire_->mute.contains(node_) || wire_->deaf.contains(node_)) return;  // hears no refusal
      return refuse(attempt, address, 2 * wire_->options.link.latency);
    }
    const SimNodeId to = listener->second.node;
    if (const auto door = wire_->doors.find(to); door != wire_->doors.end() && to != node_) {
      if (door->second == SimDoor::kDrops) return;  // nobody answers
      return refuse(attempt, address, 2 * wire_->options.link.latency);
    }
    wire_->when_open({node_, to}, [this, attempt, address, to] {
      wire_->runtime.schedule(
          to, wire_->runtime.now() + wire_->one_way({node_, to}),
          [this, attempt, address, to] { answer(attempt, address, to); },
          listening_socket(address.port));
    });
  }

  void meet(const Meeting& meeting, Duration timeout, Connected on_connected) override {
    SimRuntime& runtime = wire_->runtime;
    auto attempt = std::make_shared<Attempt>(
        Attempt{std::move(on_connected), {}, socket_of(++wire_->last_end)});
    attempt->timer = runtime.schedule(node_, runtime.now() + timeout, [attempt] {
      attempt->settle(fail(ErrorCode::kDeadline, "nobody else came to the relay"));
    });
    const auto relay = wire_->relays.find(meeting.relay.port);
    if (relay == wire_->relays.end())
      return refuse(attempt, meeting.relay, 2 * wire_->options.link.latency);
    const SimNodeId at = relay->second->node;
    wire_->when_open({node_, at}, [this, attempt, meeting, at] {
      wire_->runtime.schedule(
          at, wire_->runtime.now() + wire_->one_way({node_, at}),
          [this, attempt, meeting] { show(attempt, meeting); },
          listening_socket(meeting.relay.port));
    });
  }

 private:
  struct Attempt {
    Connected on_connected;
    TimerId timer;
    SimEventSource socket;
    bool settled = false;

    bool settle(Result<std::shared_ptr<Connection>> result) {
      if (settled) return false;
      settled = true;
      std::exchange(on_connected, {})(std::move(result));
      return true;
    }
  };

  std::uint16_t free_port() const {
    if (node_ > 0 && node_ < kFirstFreePort &&
        !wire_->listeners.contains(static_cast<std::uint16_t>(node_))) {
      return static_cast<std::uint16_t>(node_);
    }
    std::uint16_t port = kFirstFreePort;
    while (wire_->listeners.contains(port)) {
      ++port;
      SWARMLINE_CHECK(port != 0);
    }
    return port;
  }

  void refuse(const std::shared_ptr<Attempt>& attempt, const Address& address, Duration after) {
    end(attempt, address, after, {ErrorCode::kPeerGone, "connection refused"});
  }
  void find_no_descriptor(const std::shared_ptr<Attempt>& attempt, const Address& address) {
    end(attempt, address, {}, {ErrorCode::kIo, "too many open files"});
  }
  void end(const std::shared_ptr<Attempt>& attempt, const Address& address, Duration after,
           const Error& error) {
    SimRuntime& runtime = wire_->runtime;
    runtime.schedule(
        node_, runtime.now() + after,
        [wire = wire_, attempt, address, error] {
          wire->runtime.cancel(attempt->timer);
          attempt->settle(fail(
              error.code, fmt::format("cannot connect to {}: {}", to_string(address), error.what)));
        },
        attempt->socket);
  }

  // Runs at the relay, one latency after meet().
  void show(const std::shared_ptr<Attempt>& attempt, const Meeting& meeting) {
    const auto found = wire_->relays.find(meeting.relay.port);
    if (found == wire_->relays.end() || attempt->settled) return;
    SimRelayPlace& place = *found->second;
    if (const auto first = place.first.extract(meeting.ticket); !first.empty())
      return first.mapped()(node_, attempt, found->second);
    if (place.tickets.erase(meeting.ticket) == 0) {
      ++place.not_taken;
      return end(attempt, meeting.relay, wire_->one_way({place.node, node_}),
                 {ErrorCode::kDeadline, "the relay does not take this link"});
    }
    place.first[meeting.ticket] = [this, attempt](SimNodeId other,
                                                  const std::shared_ptr<void>& their_attempt,
                                                  const std::shared_ptr<SimRelayPlace>& relay) {
      join(attempt, other, std::static_pointer_cast<Attempt>(their_attempt), *relay);
    };
  }

  void join(const std::shared_ptr<Attempt>& attempt, SimNodeId other,
            const std::shared_ptr<Attempt>& theirs, SimRelayPlace& relay) {
    const std::uint64_t ours_id = ++wire_->last_end, theirs_id = ++wire_->last_end;
    const std::string remote = fmt::format("sim:{}", relay.node);
    const auto one =
        std::make_shared<SimConnection>(wire_, ours_id, SimRoute{node_, other}, remote);
    const auto two =
        std::make_shared<SimConnection>(wire_, theirs_id, SimRoute{other, node_}, remote);
    one->join(two);
    two->join(one);
    wire_->ends.emplace(ours_id, one);
    wire_->ends.emplace(theirs_id, two);
    one->be_relayed();
    two->be_relayed();
    relay.ends.insert(relay.ends.end(), {one, two});
    ++relay.links_ever;
    const auto tell = [&](SimNodeId node, const std::shared_ptr<Attempt>& waits,
                          const std::shared_ptr<SimConnection>& connection) {
      wire_->runtime.schedule(
          node, wire_->runtime.now() + wire_->one_way({relay.node, node}),
          [wire = wire_, waits, connection] {
            wire->runtime.cancel(waits->timer);
            if (!waits->settle(std::shared_ptr<Connection>(connection))) connection->abandon();
          },
          waits->socket);
    };
    tell(node_, attempt, one);
    tell(other, theirs, two);
  }

  // Runs at the listening node, one latency after connect().
  void answer(const std::shared_ptr<Attempt>& attempt, const Address& address, SimNodeId to) {
    SimRuntime& runtime = wire_->runtime;
    if (attempt->settled) return;    // its deadline has passed
    if (wire_->full.contains(to)) {  // its kernel has the connection, and nobody takes it
      wire_->waiting[{node_, to}].push_back([this, attempt, address, to] {
        wire_->runtime.schedule(
            to, wire_->runtime.now(),
            [this, attempt, address, to] { answer(attempt, address, to); },
            listening_socket(address.port));
      });
      return;
    }
    if (wire_->is_blocked({to, node_})) {
      return wire_->when_open({to, node_}, [this, attempt, address, to] {
        wire_->runtime.schedule(
            to, wire_->runtime.now(),
            [this, attempt, address, to] { answer(attempt, address, to); },
            listening_socket(address.port));
      });
    }
    const Duration back = wire_->one_way({to, node_});
    const auto listener = wire_->listeners.find(address.port);
    if (listener == wire_->listeners.end() || listener->second.node != to) {
      return refuse(attempt, address, back);
    }
    const std::uint64_t ours_id = ++wire_->last_end, theirs_id = ++wire_->last_end;
    const auto ours =
        std::make_shared<SimConnection>(wire_, ours_id, SimRoute{node_, to}, to_string(address));
    const auto theirs = std::make_shared<SimConnection>(wire_, theirs_id, SimRoute{to, node_},
                                                        fmt::format("sim:{}", node_));
    ours->join(theirs);
    theirs->join(ours);
    wire_->ends.emplace(ours_id, ours);
    wire_->ends.emplace(theirs_id, theirs);
    theirs->not_before(runtime.now() + back);  // nothing overtakes the handshake
    runtime.schedule(
        node_, runtime.now() + back,
        [wire = wire_, attempt, ours] {
          wire->runtime.cancel(attempt->timer);
          if (!attempt->settle(std::shared_ptr<Connection>(ours))) ours->abandon();
        },
        attempt->socket);
    const Accepted on_accepted = listener->second.on_accepted;  // it may stop listening
    on_accepted(theirs);
  }

  std::shared_ptr<SimWire> wire_;
  SimNodeId node_;
};

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
  std::unique_ptr<NodeNetwork>& made = nodes_[node];
  if (!made) made = std::make_unique<NodeNetwork>(wire_, node);
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
                                         : Counters{found->second.frames, found->second.bytes};
}

SimNetwork::Counters SimNetwork::delivered_total() const {
  Counters total;
  for (const auto& [pair, counters] : wire_->delivered) {
    total.frames += counters.frames;
    total.bytes += counters.bytes;
  }
  return total;
}

}  // namespace swarmline
