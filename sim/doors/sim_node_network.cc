#include "sim/doors/sim_node_network.h"

#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/identity/secrets.h"
#include "sim/doors/sim_connection.h"
#include "sim/doors/sim_handshake.h"

namespace swarmline {
namespace {

constexpr std::uint16_t kFirstFreePort = 20'000;

}  // namespace

// Of one process: once it is dead, nobody hears how it ended, though the node be alive again.
struct SimNodeNetwork::Attempt {
  Attempt(const SimWire& wire, SimNodeId by, SimEventSource from, Connected done)
      : runtime(wire.runtime),
        node(by),
        deaths(wire.runtime.deaths(by)),
        on_connected(std::move(done)),
        socket(from) {}
  const SimRuntime& runtime;
  const SimNodeId node;
  const std::uint64_t deaths;
  Connected on_connected;
  TimerId timer = {};
  SimEventSource socket;
  bool settled = false;
  std::optional<Meeting> meeting = {};
  std::shared_ptr<SimHandshake> handshake = {};

  bool is_over() const { return settled || runtime.deaths(node) != deaths; }
  bool settle(Result<std::shared_ptr<Connection>> result) {
    if (settled) return false;
    const bool heard = !is_over();
    settled = true;
    if (const auto shaking = std::exchange(handshake, nullptr)) shaking->stop();
    const Connected told = std::exchange(on_connected, {});
    if (heard) told(std::move(result));
    return heard;
  }
};

Result<Address> SimNodeNetwork::listen(const Address& address, Accepted on_accepted) {
  std::uint16_t port = address.port;
  if (port == 0) port = free_port();
  if (wire_->listeners.contains(port)) {
    return fail(ErrorCode::kIo, fmt::format("cannot listen on sim:{}: it is taken", port));
  }
  wire_->listeners.emplace(
      port, SimWire::Listener{node_, std::move(on_accepted), ++wire_->last_listener});
  return Address{"sim", port};
}

void SimNodeNetwork::stop_listening() {
  std::erase_if(wire_->listeners, [this](const auto& entry) { return entry.second.node == node_; });
}

void SimNodeNetwork::connect(const Address& address, Duration timeout, Connected on_connected) {
  SimRuntime& runtime = wire_->runtime;
  auto attempt = std::make_shared<Attempt>(*wire_, node_, socket_of(++wire_->last_end),
                                           std::move(on_connected));
  attempt->timer = runtime.schedule(node_, runtime.now() + timeout, [attempt, address, timeout] {
    attempt->settle(fail(
        ErrorCode::kDeadline,
        fmt::format("{} did not answer within {:.3g} s", to_string(address), to_seconds(timeout))));
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

void SimNodeNetwork::meet(const Meeting& meeting, Duration timeout, Connected on_connected) {
  SimRuntime& runtime = wire_->runtime;
  auto attempt = std::make_shared<Attempt>(*wire_, node_, socket_of(++wire_->last_end),
                                           std::move(on_connected));
  attempt->meeting = meeting;
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
        [this, attempt, meeting] { show(attempt, meeting); }, listening_socket(meeting.relay.port));
  });
}

std::uint16_t SimNodeNetwork::free_port() const {
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

void SimNodeNetwork::refuse(const std::shared_ptr<Attempt>& attempt, const Address& address,
                            Duration after) {
  end(attempt, address, after, {ErrorCode::kPeerGone, "connection refused"});
}

void SimNodeNetwork::find_no_descriptor(const std::shared_ptr<Attempt>& attempt,
                                        const Address& address) {
  end(attempt, address, {}, {ErrorCode::kIo, "too many open files"});
}

void SimNodeNetwork::end(const std::shared_ptr<Attempt>& attempt, const Address& address,
                         Duration after, const Error& error) {
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
void SimNodeNetwork::show(const std::shared_ptr<Attempt>& attempt, const Meeting& meeting) {
  const auto found = wire_->relays.find(meeting.relay.port);
  if (found == wire_->relays.end() || attempt->is_over()) return;
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

void SimNodeNetwork::join(const std::shared_ptr<Attempt>& attempt, SimNodeId other,
                          const std::shared_ptr<Attempt>& theirs, SimRelayPlace& relay) {
  const std::uint64_t ours_id = ++wire_->last_end, theirs_id = ++wire_->last_end;
  const std::string remote = fmt::format("sim:{}", relay.node);
  const auto one = std::make_shared<SimConnection>(wire_, ours_id, SimRoute{node_, other}, remote);
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
        [wire = wire_, waits, connection, binding = binding_of(ours_id)] {
          if (wire->guards.contains(connection->node()))
            return shake_hands(wire, waits, connection, binding, waits->meeting->relay,
                               waits->meeting->dials);
          wire->runtime.cancel(waits->timer);
          if (!waits->settle(std::shared_ptr<Connection>(connection))) connection->abandon();
        },
        waits->socket);
  };
  tell(node_, attempt, one);
  tell(other, theirs, two);
}

// Runs at the listening node, one latency after connect().
void SimNodeNetwork::answer(const std::shared_ptr<Attempt>& attempt, const Address& address,
                            SimNodeId to) {
  SimRuntime& runtime = wire_->runtime;
  if (attempt->is_over()) return;  // its deadline has passed
  if (wire_->full.contains(to)) {  // its kernel has the connection, and nobody takes it
    wire_->waiting[{node_, to}].push_back([this, attempt, address, to] {
      wire_->runtime.schedule(
          to, wire_->runtime.now(), [this, attempt, address, to] { answer(attempt, address, to); },
          listening_socket(address.port));
    });
    return;
  }
  if (wire_->is_blocked({to, node_})) {
    return wire_->when_open({to, node_}, [this, attempt, address, to] {
      wire_->runtime.schedule(
          to, wire_->runtime.now(), [this, attempt, address, to] { answer(attempt, address, to); },
          listening_socket(address.port));
    });
  }
  const Duration back = wire_->one_way({to, node_});
  const auto listener = wire_->listeners.find(address.port);
  if (listener == wire_->listeners.end() || listener->second.node != to) {
    return refuse(attempt, address, back);
  }
  if (wire_->guards.contains(node_) != wire_->guards.contains(to))
    return end(attempt, address, back,
               {ErrorCode::kDeadline, "one end alone has a key, and the other shakes no hands"});
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
  if (wire_->guards.contains(to))
    return answer_between_keys(attempt, address, ours, theirs, back, listener->second);
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

// ---- Between keys ----

// As an exporter's: of that one link, and of a run that has its seed to itself.
std::string SimNodeNetwork::binding_of(std::uint64_t end) {
  return as_string(sha256_of(fmt::format("the simulated link of end {}", end)));
}

// At an end that waits for the link: it dials, or is dialled, over a relay.
void SimNodeNetwork::shake_hands(const std::shared_ptr<SimWire>& wire,
                                 const std::shared_ptr<Attempt>& attempt,
                                 const std::shared_ptr<SimConnection>& connection,
                                 const std::string& binding, const Address& address, bool dials) {
  if (attempt->is_over()) return connection->abandon();
  attempt->handshake = std::make_shared<SimHandshake>(
      wire, connection, wire->guards.at(connection->node()), binding,
      dials ? std::optional(address) : std::nullopt,
      [wire, weak = std::weak_ptr(attempt), connection](const Result<void>& shaken) {
        if (shaken) ++wire->handshakes.made;
        const auto waits = weak.lock();
        if (!waits) return;
        wire->runtime.cancel(waits->timer);
        waits->settle(shaken ? Result<std::shared_ptr<Connection>>(connection)
                             : std::unexpected(shaken.error()));
      });
  attempt->handshake->start();
}

void SimNodeNetwork::answer_between_keys(const std::shared_ptr<Attempt>& attempt,
                                         const Address& address,
                                         const std::shared_ptr<SimConnection>& ours,
                                         const std::shared_ptr<SimConnection>& theirs,
                                         Duration back, const SimWire::Listener& listener) {
  const std::string binding = binding_of(wire_->last_end);
  wire_->runtime.schedule(
      node_, wire_->runtime.now() + back,
      [wire = wire_, attempt, ours, binding, address] {
        shake_hands(wire, attempt, ours, binding, address, true);
      },
      attempt->socket);
  const auto accepted = [wire = wire_, theirs, port = address.port,
                         number = listener.number](const Result<void>& shaken) {
    const SimRoute route = theirs->route();
    if (wire->on_shaken) wire->on_shaken(route.second, route.first, shaken);
    if (!shaken) {
      ++wire->handshakes.failed;
      if (shaken.error().code == ErrorCode::kRefused) ++wire->handshakes.refused;
      return;
    }
    ++wire->handshakes.made;
    const auto still = wire->listeners.find(port);
    if (still == wire->listeners.end() || still->second.number != number) return theirs->abandon();
    const Network::Accepted on_accepted = still->second.on_accepted;  // it may stop listening
    on_accepted(theirs);
  };
  std::make_shared<SimHandshake>(wire_, theirs, wire_->guards.at(theirs->node()), binding,
                                 std::nullopt, accepted)
      ->start();
}

}  // namespace swarmline
