#include "sim/doors/sim_network.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/hash.h"

namespace swarmline {
namespace {

constexpr Duration kCloseFlushMax = std::chrono::seconds(1);
constexpr std::uint16_t kFirstFreePort = 20'000;
constexpr std::uint64_t kSmallFrameBytes = 16 * kKiB;
// What is charged more than a frame can have stands for many, sent between those of others.
constexpr std::uint64_t kStreamBytes = Limits::frame_payload_bytes_max;

using NodePair = std::pair<SimNodeId, SimNodeId>;  // from, to

// Ports and the numbers of connections' ends share one space.
SimEventSource socket_of(std::uint64_t end) {
  return (kSimSocketMin + 65'536 + static_cast<SimEventSource>(end)) & ~kSimSocketEnd;
}
SimEventSource listening_socket(std::uint16_t port) {
  return kSimSocketMin + port;
}

class SimConnection;

}  // namespace

struct SimNetwork::Core {
  struct Listener {
    SimNodeId node;
    Network::Accepted on_accepted;
  };

  Core(SimRuntime& r, SimNetworkOptions o)
      : runtime(r), options(o), rng(r.rng("network")), damage_rng(r.rng("damage")) {}

  const SimLink& link_of(NodePair pair) const {
    if (links.empty()) return options.link;
    const auto found = links.find(pair);
    return found == links.end() ? options.link : found->second;
  }
  Duration one_way(NodePair pair) {
    const SimLink& link = link_of(pair);
    if (link.jitter == Duration{}) return link.latency;
    return link.latency + from_seconds(rng.exponential(to_seconds(link.jitter)));
  }
  // When the last of `bytes` leaves, and when it is there, if they join the queues now.
  struct Passage {
    Instant leaves, arrives;
  };
  Passage passage(NodePair pair, std::uint64_t bytes) {
    const Instant now = runtime.now();
    const bool streams = bytes > kStreamBytes;
    const auto taking = [bytes](double rate) {
      return from_seconds(static_cast<double>(bytes) / rate);
    };
    // Connections share a node's card fairly: a small frame goes between the parts of large ones. A
    // stream takes half of a card, and leaves half of it to others while it lasts; streams wait for
    // each other where they are received, for they come from many.
    const auto rate_of = [&](const Way& way, double rate) {
      return streams || way.streaming_until > now ? rate / 2 : rate;
    };
    const auto queue = [&](Way& way, Instant earliest, double rate, bool receives) {
      Instant& free_at = streams ? way.streaming_until : way.free_at;
      const bool waits = streams ? receives : bytes > kSmallFrameBytes;
      const Instant end = std::max(waits ? free_at : earliest, earliest) + taking(rate);
      free_at = std::max(free_at, end);
      return end;
    };
    Passage passage{now, now};
    Instant begins = now;
    if (const double rate = link_of(pair).bytes_per_second; rate > 0) {
      Instant& free_at = link_free_at[pair];
      begins = std::max(free_at, now);
      passage.leaves = free_at = begins + taking(rate);
    }
    if (const auto card = cards.find(pair.first); card != cards.end()) {
      const double rate = rate_of(card->second.up, card->second.rates.up_bytes_per_second);
      const Instant end = queue(card->second.up, now, rate, false);
      begins = std::max(begins, end - taking(rate));
      passage.leaves = std::max(passage.leaves, end);
    }
    const Duration latency = one_way(pair);
    passage.arrives = passage.leaves + latency;
    if (const auto card = cards.find(pair.second); card != cards.end()) {
      const double rate = rate_of(card->second.down, card->second.rates.down_bytes_per_second);
      const Instant first = std::max(begins + latency, passage.arrives - taking(rate));
      passage.arrives = std::max(passage.arrives, queue(card->second.down, first, rate, true));
    }
    return passage;
  }
  std::vector<std::shared_ptr<SimConnection>> ends_where(
      const std::function<bool(const SimConnection&)>& wanted) const;
  std::uint64_t bytes_of(NodePair pair, const Frame& frame) const {
    return options.charged_bytes ? options.charged_bytes(pair.first, pair.second, frame)
                                 : frame.wire_bytes();
  }
  enum class Damage : std::uint8_t { kNone, kPayload, kFrame };
  Damage draw_damage(NodePair pair, const Frame& frame) {
    if (damaged.empty()) return Damage::kNone;
    const auto share_of = [this](SimNodeId node) {
      const auto found = damaged.find(node);
      return found == damaged.end() ? 0.0 : found->second;
    };
    const double share = std::max(share_of(pair.first), share_of(pair.second));
    if (share == 0 || damage_rng.uniform() >= share) return Damage::kNone;
    return frame.payload_bytes() > 0 && damage_rng.below(2) == 0 ? Damage::kPayload
                                                                 : Damage::kFrame;
  }
  bool is_blocked(NodePair pair) const { return blocked.contains(pair); }
  // Now, or when the direction is open again.
  void when_open(NodePair pair, std::function<void()> fn) {
    const auto found = blocked.find(pair);
    if (found == blocked.end()) return fn();
    found->second.push_back(std::move(fn));
  }

  SimRuntime& runtime;
  SimNetworkOptions options;
  Rng rng, damage_rng;
  Filter filter;
  Tap tap;
  std::map<NodePair, SimLink> links;
  std::map<NodePair, Instant> link_free_at;
  struct Way {  // through a card
    Instant free_at, streaming_until;
  };
  struct Card {
    SimCard rates;
    Way up, down;
  };
  std::unordered_map<SimNodeId, Card> cards;                       // never iterated
  std::map<NodePair, std::vector<std::function<void()>>> blocked;  // and what waits for its end
  std::map<SimNodeId, double> damaged;                             // and the share
  std::map<NodePair, Counters> counters;
  std::map<std::uint16_t, Listener> listeners;
  std::map<std::uint64_t, std::shared_ptr<SimConnection>> ends;  // until closed
  std::uint64_t last_end = 0;
};

namespace {

// One end of a connection. Neither keeps the other alive.
class SimConnection final : public Connection, public std::enable_shared_from_this<SimConnection> {
 public:
  using Core = SimNetwork::Core;

  SimConnection(std::shared_ptr<Core> core, std::uint64_t id, NodePair route, std::string remote)
      : core_(std::move(core)),
        id_(id),
        route_(route),
        delivered_(core_->counters[{route.second, route.first}]),
        remote_(std::move(remote)) {}
  void join(const std::shared_ptr<SimConnection>& twin) {
    twin_ = twin;
    twin_socket_ = twin->socket();
  }

  void start(Handlers handlers) override {
    SWARMLINE_CHECK(!started_);
    started_ = true;
    handlers_ = std::move(handlers);
    core_->runtime.schedule(
        route_.first, core_->runtime.now(),
        [self = shared_from_this()] {
          if (self->early_end_) return self->finish(*self->early_end_);
          self->drain();
        },
        kSimPosted);
  }

  void send(Frame frame) override {
    if (ending_) return;
    const std::uint64_t bytes = core_->bytes_of(route_, frame);
    const FrameHeader header = frame.header();
    SWARMLINE_CHECK(decode_header(encode_header(header)).has_value());
    if (unsent_bytes() + bytes > core_->options.queue_bytes_max) {
      return break_off({ErrorCode::kRefused, fmt::format("more than {} bytes are queued for {}",
                                                         core_->options.queue_bytes_max, remote_)});
    }
    ++counters_.frames_sent;
    counters_.bytes_sent += bytes;
    FrameFate fate;
    if (core_->filter) fate = core_->filter(route_.first, route_.second, frame);
    if (fate.kind == FrameFate::Kind::kDropConnection) {
      return break_off({ErrorCode::kPeerGone, "the link was cut"});
    }
    if (fate.kind == FrameFate::Kind::kHold) holding_ = true;
    const Core::Damage damage = core_->draw_damage(route_, frame);
    if (damage == Core::Damage::kPayload) flip_a_bit(frame);
    put({.frame = std::move(frame),
         .delay = fate.delay,
         .damaged = damage == Core::Damage::kFrame});
  }

  void close() override {
    if (ending_) return;
    ending_ = true;
    cutoff_ = std::make_shared<Instant>(core_->runtime.now() + kCloseFlushMax);
    for (Sent& sent : in_flight_) *sent.cutoff = *cutoff_;
    put({.frame = std::nullopt});
    if (held_.empty()) return;
    core_->runtime.schedule(route_.first, *cutoff_, [self = shared_from_this()] {
      if (self->held_.empty()) return;
      self->held_.clear();
      self->holding_ = false;
      self->notify_twin();
      self->finish({ErrorCode::kStopped, "closed by this end"});
    });
  }

  std::uint64_t unsent_bytes() const override {
    std::uint64_t bytes = 0;
    for (const Item& item : held_) bytes += item.frame ? core_->bytes_of(route_, *item.frame) : 0;
    while (!in_flight_.empty() && in_flight_.front().departure <= core_->runtime.now()) {
      in_flight_bytes_ -= in_flight_.front().bytes;
      in_flight_.pop_front();
    }
    return bytes + in_flight_bytes_;
  }
  Counters counters() const override { return counters_; }
  std::string remote() const override { return remote_; }

  NodePair route() const { return route_; }
  SimEventSource socket() const { return socket_of(id_); }
  void not_before(Instant when) { last_arrival_ = std::max(last_arrival_, when); }

  std::size_t release() {
    holding_ = false;
    return flush();
  }
  // Sends what waits, unless a filter or a blocked direction holds it still.
  std::size_t flush() {
    if (holding_ || core_->is_blocked(route_)) return 0;
    const std::deque<Item> items = std::exchange(held_, {});
    for (const Item& item : items) launch(item);
    return items.size();
  }

  // Both ends see the end of the connection: this one at once, the other one when the news arrives.
  void break_off(Error error) {
    if (closed_) return;
    ending_ = true;
    holding_ = false;
    held_.clear();
    notify_twin();
    core_->runtime.schedule(
        route_.first, core_->runtime.now(),
        [self = shared_from_this(), error = std::move(error)] { self->finish(error); },
        socket() | kSimSocketEnd);
  }

  // The process is gone: no callback here.
  void abandon() {
    const auto self = shared_from_this();  // the core may hold the last reference
    if (closed_) return;
    for (Sent& sent : in_flight_) *sent.cutoff = core_->runtime.now();
    held_.clear();
    notify_twin();
    ending_ = closed_ = true;
    core_->ends.erase(id_);
    if (!delivering_) handlers_ = {};
  }

 private:
  struct Item {
    std::optional<Frame> frame;  // none: the end of the stream
    Duration delay{};
    bool damaged = false;  // beyond what a receiver takes
  };
  struct Sent {
    Instant departure;
    std::uint64_t bytes;
    std::shared_ptr<Instant> cutoff;  // what leaves later is lost
  };

  void put(Item item) {
    if (holding_ || core_->is_blocked(route_)) {
      held_.push_back(std::move(item));
    } else {
      launch(std::move(item));
    }
  }

  // In a copy: the sender's own bytes stay whole.
  void flip_a_bit(Frame& frame) {
    join_payload(frame);
    Buffer copy = Buffer::copy_of(frame.received_payload());
    const std::uint64_t bit = core_->damage_rng.below(8 * copy.size());
    copy.bytes()[bit / 8] ^= std::byte{1} << (bit % 8);
    frame.payload.assign(1, SharedBytes(std::move(copy)));
  }

  void launch(Item item) {
    const std::uint64_t bytes = item.frame ? core_->bytes_of(route_, *item.frame) : 0;
    const auto [leaves, comes] = core_->passage(route_, bytes);
    const Instant arrives = std::max(comes + item.delay, last_arrival_);
    const bool is_end = !item.frame;
    if (item.frame) arrive_in_parts(*item.frame, leaves, arrives);
    last_arrival_ = arrives;
    if (!item.frame) {
      const Instant flushed = std::min(leaves, *cutoff_);
      core_->runtime.schedule(
          route_.first, flushed,
          [self = shared_from_this()] {
            self->finish({ErrorCode::kStopped, "closed by this end"});
          },
          socket() | kSimSocketEnd);
    } else {
      in_flight_.push_back({leaves, bytes, cutoff_});
      in_flight_bytes_ += bytes;
    }
    core_->runtime.schedule(
        route_.second, arrives,
        [twin = twin_, leaves, cutoff = cutoff_, item = std::move(item)]() mutable {
          if (item.frame && leaves > *cutoff) return;
          if (const auto self = twin.lock()) self->arrived(std::move(item));
        },
        is_end ? twin_socket_ | kSimSocketEnd : twin_socket_);
  }

  // What the link's rate makes of a payload: how long it takes, and where it stands on the way.
  void arrive_in_parts(Frame& frame, Instant leaves, Instant arrives) {
    const double rate = core_->link_of(route_).bytes_per_second;
    const std::uint64_t bytes = frame.payload_bytes();
    if (rate <= 0 || bytes == 0) return;
    const std::uint64_t charged =
        core_->options.charged_bytes ? core_->bytes_of(route_, frame) : bytes;
    frame.received_over = from_seconds(static_cast<double>(charged) / rate);
    if (bytes < core_->options.arrival_bytes_min) return;
    join_payload(frame);
    for (std::uint64_t quarter = 1; quarter < 4; ++quarter) {
      const Instant when = arrives - frame.received_over * (4 - quarter) / 4;
      core_->runtime.schedule(
          route_.second, std::max({when, last_arrival_, core_->runtime.now()}),
          [twin = twin_, leaves, cutoff = cutoff_, frame, quarter] {
            const auto self = twin.lock();
            if (leaves <= *cutoff && self)
              self->arriving(frame, frame.payload_bytes() * quarter / 4);
          },
          twin_socket_);
    }
  }

  void arrived(Item item) {
    if (closed_) return;
    inbox_.push_back(std::move(item));
    if (started_) drain();
  }

  void arriving(const Frame& frame, std::uint64_t bytes) {
    if (!started_ || ending_ || !inbox_.empty() || !handlers_.on_arriving) return;
    delivering_ = true;
    handlers_.on_arriving({.kind = frame.kind,
                           .request = frame.request,
                           .flags = frame.flags,
                           .meta = frame.meta,
                           .arrived = frame.received_payload().first(bytes),
                           .payload_bytes = frame.payload_bytes()});
    delivering_ = false;
    if (closed_) handlers_ = {};
  }

  void drain() {
    const auto self = shared_from_this();
    delivering_ = true;
    while (!inbox_.empty() && !ending_) {
      Item item = std::move(inbox_.front());
      inbox_.pop_front();
      if (!item.frame) {
        ending_ = true;
        delivering_ = false;
        return finish({ErrorCode::kPeerGone, "closed by the other end"});
      }
      if (item.damaged) {
        delivering_ = false;
        return break_off({ErrorCode::kCorrupt, "frame does not match its hash"});
      }
      deliver(std::move(*item.frame));
    }
    delivering_ = false;
    if (closed_) handlers_ = {};
  }

  void deliver(Frame frame) {
    const NodePair from_to{route_.second, route_.first};
    const std::uint64_t bytes = core_->bytes_of(from_to, frame);
    ++counters_.frames_received;
    counters_.bytes_received += bytes;
    ++delivered_.frames;
    delivered_.bytes += bytes;
    core_->runtime.trace(std::uint64_t{route_.second} << 16 | frame.kind);
    core_->runtime.trace(bytes);
    core_->runtime.trace(xxh3(as_bytes(frame.meta)));
    join_payload(frame);
    if (core_->tap) core_->tap(route_.second, route_.first, frame);
    if (handlers_.on_frame) handlers_.on_frame(std::move(frame));
  }

  // As a socket would: at most one part, 64-byte aligned. One part that fits is shared as it is.
  static void join_payload(Frame& frame) {
    const std::uint64_t bytes = frame.payload_bytes();
    const auto aligned = [](const SharedBytes& part) {
      return reinterpret_cast<std::uintptr_t>(part.data()) % kBufferAlignment == 0;
    };
    if (bytes == 0) return frame.payload.clear();
    if (frame.payload.size() == 1 && aligned(frame.payload.front())) return;
    Buffer joined(bytes);
    std::size_t at = 0;
    for (const SharedBytes& part : frame.payload) {
      std::copy_n(part.data(), part.size(), joined.data() + at);
      at += part.size();
    }
    frame.payload.assign(1, SharedBytes(std::move(joined)));
  }

  void notify_twin() {
    core_->when_open(route_, [core = core_, route = route_, twin = twin_, socket = twin_socket_,
                              last = last_arrival_] {
      const Instant arrives = std::max(core->runtime.now() + core->link_of(route).latency, last);
      core->runtime.schedule(
          route.second, arrives,
          [twin] {
            if (const auto self = twin.lock()) self->arrived({.frame = std::nullopt});
          },
          socket | kSimSocketEnd);
    });
  }

  void finish(const Error& error) {
    if (closed_) return;
    if (!started_) {  // nobody listens: no callback is due until start()
      if (!early_end_) early_end_ = error;
      return;
    }
    closed_ = ending_ = true;
    const auto self = shared_from_this();
    core_->ends.erase(id_);
    inbox_.clear();
    const Handlers handlers = std::exchange(handlers_, {});
    if (handlers.on_closed) handlers.on_closed(error);
  }

  std::shared_ptr<Core> core_;
  const std::uint64_t id_;
  std::weak_ptr<SimConnection> twin_;
  SimEventSource twin_socket_ = kSimSocketMin;
  const NodePair route_;  // this node, the other one
  SimNetwork::Counters& delivered_;
  const std::string remote_;
  Handlers handlers_;
  bool started_ = false, ending_ = false, closed_ = false, delivering_ = false, holding_ = false;
  std::deque<Item> inbox_;  // arrived
  std::deque<Item> held_;   // behind a frame that a filter holds
  mutable std::deque<Sent> in_flight_;
  mutable std::uint64_t in_flight_bytes_ = 0;
  std::shared_ptr<Instant> cutoff_ = std::make_shared<Instant>(Instant::max());
  Instant last_arrival_;
  std::optional<Error> early_end_;  // the connection ended before start()
  Connection::Counters counters_;
};

}  // namespace

std::vector<std::shared_ptr<SimConnection>> SimNetwork::Core::ends_where(
    const std::function<bool(const SimConnection&)>& wanted) const {
  std::vector<std::shared_ptr<SimConnection>> found;
  for (const auto& [id, end] : ends) {
    if (wanted(*end)) found.push_back(end);
  }
  return found;
}

class SimNetwork::NodeNetwork final : public Network {
 public:
  NodeNetwork(std::shared_ptr<Core> core, SimNodeId node) : core_(std::move(core)), node_(node) {}

  Result<Address> listen(const Address& address, Accepted on_accepted) override {
    std::uint16_t port = address.port;
    if (port == 0) port = free_port();
    if (core_->listeners.contains(port)) {
      return fail(ErrorCode::kIo, fmt::format("cannot listen on sim:{}: it is taken", port));
    }
    core_->listeners.emplace(port, Core::Listener{node_, std::move(on_accepted)});
    return Address{"sim", port};
  }

  void stop_listening() override {
    std::erase_if(core_->listeners,
                  [this](const auto& entry) { return entry.second.node == node_; });
  }

  void connect(const Address& address, Duration timeout, Connected on_connected) override {
    SimRuntime& runtime = core_->runtime;
    auto attempt = std::make_shared<Attempt>(
        Attempt{std::move(on_connected), {}, socket_of(++core_->last_end)});
    attempt->timer = runtime.schedule(node_, runtime.now() + timeout, [attempt, address, timeout] {
      attempt->settle(
          fail(ErrorCode::kDeadline, fmt::format("{} did not answer within {:.3g} s",
                                                 to_string(address), to_seconds(timeout))));
    });
    const auto listener = core_->listeners.find(address.port);
    if (listener == core_->listeners.end()) {
      return refuse(attempt, address, 2 * core_->options.link.latency);
    }
    const SimNodeId to = listener->second.node;
    core_->when_open({node_, to}, [this, attempt, address, to] {
      core_->runtime.schedule(
          to, core_->runtime.now() + core_->one_way({node_, to}),
          [this, attempt, address, to] { answer(attempt, address, to); },
          listening_socket(address.port));
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
        !core_->listeners.contains(static_cast<std::uint16_t>(node_))) {
      return static_cast<std::uint16_t>(node_);
    }
    std::uint16_t port = kFirstFreePort;
    while (core_->listeners.contains(port)) {
      ++port;
      SWARMLINE_CHECK(port != 0);
    }
    return port;
  }

  void refuse(const std::shared_ptr<Attempt>& attempt, const Address& address, Duration after) {
    SimRuntime& runtime = core_->runtime;
    runtime.schedule(
        node_, runtime.now() + after,
        [core = core_, attempt, address] {
          core->runtime.cancel(attempt->timer);
          attempt->settle(
              fail(ErrorCode::kPeerGone,
                   fmt::format("cannot connect to {}: connection refused", to_string(address))));
        },
        attempt->socket);
  }

  // Runs at the listening node, one latency after connect().
  void answer(const std::shared_ptr<Attempt>& attempt, const Address& address, SimNodeId to) {
    SimRuntime& runtime = core_->runtime;
    if (attempt->settled) return;  // its deadline has passed
    if (core_->is_blocked({to, node_})) {
      return core_->when_open({to, node_}, [this, attempt, address, to] {
        core_->runtime.schedule(
            to, core_->runtime.now(),
            [this, attempt, address, to] { answer(attempt, address, to); },
            listening_socket(address.port));
      });
    }
    const Duration back = core_->one_way({to, node_});
    const auto listener = core_->listeners.find(address.port);
    if (listener == core_->listeners.end() || listener->second.node != to) {
      return refuse(attempt, address, back);
    }
    const std::uint64_t ours_id = ++core_->last_end, theirs_id = ++core_->last_end;
    const auto ours =
        std::make_shared<SimConnection>(core_, ours_id, NodePair{node_, to}, to_string(address));
    const auto theirs = std::make_shared<SimConnection>(core_, theirs_id, NodePair{to, node_},
                                                        fmt::format("sim:{}", node_));
    ours->join(theirs);
    theirs->join(ours);
    core_->ends.emplace(ours_id, ours);
    core_->ends.emplace(theirs_id, theirs);
    theirs->not_before(runtime.now() + back);  // nothing overtakes the handshake
    runtime.schedule(
        node_, runtime.now() + back,
        [core = core_, attempt, ours] {
          core->runtime.cancel(attempt->timer);
          if (!attempt->settle(std::shared_ptr<Connection>(ours))) ours->abandon();
        },
        attempt->socket);
    const Accepted on_accepted = listener->second.on_accepted;  // it may stop listening
    on_accepted(theirs);
  }

  std::shared_ptr<Core> core_;
  SimNodeId node_;
};

SimNetwork::SimNetwork(SimRuntime& runtime, SimNetworkOptions options)
    : core_(std::make_shared<Core>(runtime, options)) {}

SimNetwork::~SimNetwork() {
  // Connections hold the core, and the core holds them: part them, without callbacks.
  core_->listeners.clear();
  for (const auto& end : core_->ends_where([](const SimConnection&) { return true; }))
    end->abandon();
}

Network& SimNetwork::node(SimNodeId node) {
  std::unique_ptr<NodeNetwork>& made = nodes_[node];
  if (!made) made = std::make_unique<NodeNetwork>(core_, node);
  return *made;
}

void SimNetwork::set_link(SimNodeId from, SimNodeId to, SimLink link) {
  core_->links.insert_or_assign({from, to}, link);
}
void SimNetwork::set_card(SimNodeId node, SimCard card) {
  SWARMLINE_CHECK(card.up_bytes_per_second > 0 && card.down_bytes_per_second > 0);
  core_->cards[node] = {.rates = card, .up = {}, .down = {}};
}
void SimNetwork::set_filter(Filter filter) {
  core_->filter = std::move(filter);
}
void SimNetwork::set_tap(Tap tap) {
  core_->tap = std::move(tap);
}

std::size_t SimNetwork::release(SimNodeId from, SimNodeId to) {
  std::size_t released = 0;
  const auto wanted = [&](const SimConnection& end) { return end.route() == NodePair{from, to}; };
  for (const auto& end : core_->ends_where(wanted)) released += end->release();
  return released;
}

void SimNetwork::kill(SimNodeId node) {
  core_->runtime.kill(node);
  std::erase_if(core_->listeners, [&](const auto& entry) { return entry.second.node == node; });
  const auto wanted = [&](const SimConnection& end) { return end.route().first == node; };
  for (const auto& end : core_->ends_where(wanted)) end->abandon();
}

void SimNetwork::cut(SimNodeId a, SimNodeId b) {
  const auto wanted = [&](const SimConnection& end) { return end.route() == NodePair{a, b}; };
  for (const auto& end : core_->ends_where(wanted))
    end->break_off({ErrorCode::kPeerGone, "the link was cut"});
}

void SimNetwork::damage(SimNodeId node, double share) {
  if (share > 0)
    core_->damaged[node] = share;
  else
    core_->damaged.erase(node);
}

void SimNetwork::block(SimNodeId from, SimNodeId to) {
  core_->blocked.try_emplace({from, to});
}

void SimNetwork::unblock(SimNodeId from, SimNodeId to) {
  const auto entry = core_->blocked.extract({from, to});
  if (entry.empty()) return;
  const auto wanted = [&](const SimConnection& end) { return end.route() == NodePair{from, to}; };
  for (const auto& end : core_->ends_where(wanted)) end->flush();
  for (const std::function<void()>& fn : entry.mapped()) fn();
}

SimNetwork::Counters SimNetwork::delivered(SimNodeId from, SimNodeId to) const {
  const auto found = core_->counters.find({from, to});
  return found == core_->counters.end() ? Counters{} : found->second;
}

SimNetwork::Counters SimNetwork::delivered_total() const {
  Counters total;
  for (const auto& [pair, counters] : core_->counters) {
    total.frames += counters.frames;
    total.bytes += counters.bytes;
  }
  return total;
}

}  // namespace swarmline
