#include "sim/doors/sim_connection.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/marks.h"

namespace swarmline {
namespace {

constexpr Duration kCloseFlushMax = std::chrono::seconds(1);

// As a socket would: at most one part, 64-byte aligned. One part that fits is shared as it is.
void join_payload(Frame& frame) {
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

}  // namespace

SimConnection::SimConnection(std::shared_ptr<SimWire> wire, std::uint64_t id, SimRoute route,
                             std::string remote)
    : wire_(std::move(wire)),
      id_(id),
      route_(route),
      delivered_(wire_->delivered_over({route.second, route.first})),
      remote_(std::move(remote)) {}

void SimConnection::join(const std::shared_ptr<SimConnection>& twin) {
  twin_ = twin;
  twin_socket_ = twin->socket();
  if (side_ == 1) return;
  twin->side_ = 1;
  twin->pipe_ = pipe_;
}

void SimConnection::start(Handlers handlers) {
  SWARMLINE_CHECK(!started_);
  started_ = true;
  handlers_ = std::move(handlers);
  if (handlers_.stranger) bounds_ = *handlers_.stranger;
  wire_->runtime.schedule(
      route_.first, wire_->runtime.now(),
      [self = shared_from_this()] {
        if (self->early_end_) return self->finish(*self->early_end_);
        self->drain();
      },
      kSimPosted);
}

void SimConnection::greet(Greeting greeting) {
  greeting_ = std::move(greeting);
  wire_->runtime.schedule(
      route_.first, wire_->runtime.now(),  // it may have ended already
      [self = shared_from_this()] {
        if (self->greeting_ && self->early_end_) return self->finish(*self->early_end_);
        self->hear();
      },
      kSimPosted);
}

void SimConnection::say(SimWords words) {
  if (ending_) return;
  const bool damaged = wire_->draw_damage(route_, Frame()) != SimWire::Damage::kNone;
  if (damaged) wire_->hurts(route_);
  put({.frame = std::nullopt, .words = std::move(words), .delay = {}, .damaged = damaged});
}

void SimConnection::secure(const KeyHash& key, std::string admitted_as) {
  peer_key_ = key;
  admitted_as_ = std::move(admitted_as);
}

void SimConnection::hear() {
  const auto self = shared_from_this();
  while (greeting_ && !inbox_.empty()) {
    const Item item = std::move(inbox_.front());
    inbox_.pop_front();
    if (item.is_end()) return finish({ErrorCode::kPeerGone, "it closed the connection"});
    if (item.damaged || !item.words)
      return finish({ErrorCode::kCorrupt, "what it says does not match its hash"});
    const auto on_words = greeting_->on_words;
    on_words(*item.words);
  }
}

void SimConnection::send(Frame frame) {
  const bool in_pieces = travels_in_pieces(frame);
  const bool now = goes_ahead(frame) || (later_.empty() && !in_pieces);
  frame.flags &= ~kFrameFlagAhead;
  if (now) {
    if (has_room_for(wire_->bytes_of(route_, frame))) send_now(std::move(frame));
    return;
  }
  if (!has_room_for(wire_bytes_in_pieces(frame))) return;
  const auto put_off = [this](Frame piece) {
    later_bytes_ += piece.wire_bytes();
    later_.push_back(std::move(piece));
  };
  if (in_pieces) {
    for (Frame& piece : cut_into_pieces(std::move(frame))) put_off(std::move(piece));
  } else {
    put_off(std::move(frame));
  }
  if (!waits_) send_later();
}

// One after the other, each once most of the one before has left; into a way that is blocked all at
// once.
void SimConnection::send_later() {
  waits_ = false;
  while (!later_.empty() && !ending_) {
    if (held_.empty() && unsent_bytes() - later_bytes_ >= kPieceBytes) {
      waits_ = true;
      wire_->runtime.schedule(
          route_.first, in_flight_.front().departure,
          [self = shared_from_this()] { self->send_later(); }, socket());
      return;
    }
    Frame frame = std::move(later_.front());
    later_.pop_front();
    later_bytes_ -= frame.wire_bytes();
    send_now(std::move(frame));
  }
}

// False: nothing is sent any more. What stands in for a tensor takes none of its memory, and may
// stand for gigabytes that a run sends one piece after the other.
bool SimConnection::has_room_for(std::uint64_t bytes) {
  if (ending_) return false;
  if (wire_->options.charged_bytes) return true;
  const std::uint64_t most = std::min(wire_->options.queue_bytes_max, bounds_.unsent_bytes_max);
  if (unsent_bytes() + bytes <= most) return true;
  break_off(
      {ErrorCode::kRefused, fmt::format("more than {} bytes are queued for {}", most, remote_)});
  return false;
}

void SimConnection::send_now(Frame frame) {
  const std::uint64_t bytes = wire_->bytes_of(route_, frame);
  SWARMLINE_CHECK(decode_header(encode_header(frame.header())).has_value());
  ++counters_.frames_sent;
  counters_.bytes_sent += bytes;
  FrameFate fate;
  if (wire_->filter) fate = wire_->filter(route_.first, route_.second, frame);
  if (fate.kind != FrameFate::Kind::kDeliver) wire_->hurts(route_);
  if (fate.kind == FrameFate::Kind::kDropConnection) {
    return break_off({ErrorCode::kPeerGone, "the link was cut"});
  }
  if (fate.kind == FrameFate::Kind::kHold) holding_ = true;
  const SimWire::Damage damage = wire_->draw_damage(route_, frame);
  if (damage != SimWire::Damage::kNone) wire_->hurts(route_);
  // Between keys each byte is authenticated: the link ends where one has changed.
  const bool noticed = damage == SimWire::Damage::kFrame ||
                       (damage == SimWire::Damage::kPayload && peer_key_.has_value());
  if (damage == SimWire::Damage::kPayload && !noticed) flip_a_bit(frame);
  put({.frame = std::move(frame), .words = std::nullopt, .delay = fate.delay, .damaged = noticed});
}

void SimConnection::believe(const ConnectionBounds& bounds) {
  bounds_ = bounds;
}

bool SimConnection::has_room(const Frame& frame) const {
  const FrameRoom room = bounds_.room(frame.kind);
  return frame.meta.size() <= room.meta_bytes_max &&
         frame.payload_bytes() <= room.payload_bytes_max;
}

void SimConnection::close() {
  if (ending_) return;
  for (Frame& frame : std::exchange(later_, {})) send_now(std::move(frame));
  later_bytes_ = 0;
  if (ending_) return;  // a filter cut the link
  ending_ = true;
  cutoff_ = std::make_shared<Instant>(wire_->runtime.now() + kCloseFlushMax);
  for (Sent& sent : in_flight_) *sent.cutoff = *cutoff_;
  put({});
  if (held_.empty()) return;
  wire_->runtime.schedule(route_.first, *cutoff_, [self = shared_from_this()] {
    if (self->held_.empty()) return;
    self->held_.clear();
    self->holding_ = false;
    self->notify_twin();
    self->finish({ErrorCode::kStopped, "closed by this end"});
  });
}

std::uint64_t SimConnection::bytes_of(const Item& item) const {
  if (item.words) return item.words->bytes();
  return item.frame ? wire_->bytes_of(route_, *item.frame) : 0;
}

std::uint64_t SimConnection::unsent_bytes() const {
  std::uint64_t bytes = later_bytes_;
  for (const Item& item : held_) bytes += bytes_of(item);
  while (!in_flight_.empty() && in_flight_.front().departure <= wire_->runtime.now()) {
    in_flight_bytes_ -= in_flight_.front().bytes;
    in_flight_.pop_front();
  }
  return bytes + in_flight_bytes_;
}

std::size_t SimConnection::release() {
  holding_ = false;
  return flush();
}
std::size_t SimConnection::flush() {
  if (holding_ || wire_->is_blocked(route_)) return 0;
  const std::deque<Item> items = std::exchange(held_, {});
  for (const Item& item : items) launch(item);
  return items.size();
}

void SimConnection::break_off(Error error) {
  if (closed_) return;
  ending_ = true;
  holding_ = false;
  held_.clear();
  notify_twin();
  wire_->runtime.schedule(
      route_.first, wire_->runtime.now(),
      [self = shared_from_this(), error = std::move(error)] { self->finish(error); },
      socket() | kSimSocketEnd);
}

void SimConnection::abandon() {
  const auto self = shared_from_this();  // the wire may hold the last reference
  if (closed_) return;
  for (Sent& sent : in_flight_) *sent.cutoff = wire_->runtime.now();
  held_.clear();
  notify_twin();
  ending_ = closed_ = true;
  greeting_.reset();
  wire_->runtime.cancel(user_timer_);
  wire_->ends.erase(id_);
  if (!delivering_) handlers_ = {};
}

void SimConnection::lose_power() {
  pipe_->over[side_] = true;
  abandon();
}

void SimConnection::vanish() {
  pipe_->vanishes[side_] = true;
}

// ---- Acknowledgements: waited for only where none can come ----

void SimConnection::unheard() {
  if (awaits_ || closed_ || is_heard()) return;
  awaits_ = true;
  user_timer_ = wire_->runtime.schedule(
      route_.first, wire_->runtime.now() + wire_->options.user_timeout,
      [self = shared_from_this()] { self->time_out(); }, socket());
}

void SimConnection::acknowledged() {
  if (!awaits_ || !is_heard()) return;
  awaits_ = false;
  wire_->runtime.cancel(user_timer_);
  if (pipe_->over[1 - side_]) be_reset(wire_->runtime.now() + 2 * wire_->link_of(route_).latency);
}

void SimConnection::time_out() {
  if (closed_) return;
  SWARMLINE_MARK("sim.user_timeout");
  pipe_->over[side_] = true;
  ending_ = true;
  holding_ = false;
  held_.clear();
  finish({ErrorCode::kDeadline, "nothing is acknowledged"});
}

void SimConnection::be_reset(Instant when) {
  wire_->runtime.schedule(
      route_.first, when,
      [self = shared_from_this()] {
        if (self->closed_) return;
        SWARMLINE_MARK("sim.late_reset");
        self->ending_ = true;
        self->held_.clear();
        self->finish({ErrorCode::kPeerGone, "reset by the other end"});
      },
      socket() | kSimSocketEnd);
}

void SimConnection::put(Item item) {
  unheard();
  if (holding_ || wire_->is_blocked(route_)) {
    held_.push_back(std::move(item));
  } else {
    launch(std::move(item));
  }
}

// In a copy: the sender's own bytes stay whole.
void SimConnection::flip_a_bit(Frame& frame) {
  join_payload(frame);
  Buffer copy = Buffer::copy_of(frame.received_payload());
  const std::uint64_t bit = wire_->damage_rng.below(8 * copy.size());
  copy.bytes()[bit / 8] ^= std::byte{1} << (bit % 8);
  frame.payload.assign(1, SharedBytes(std::move(copy)));
}

void SimConnection::launch(Item item) {
  const std::uint64_t bytes = bytes_of(item);
  const bool streams = wire_->is_stream(item.frame ? &*item.frame : nullptr, bytes);
  const auto [leaves, comes] = wire_->passage(route_, bytes, streams);
  const bool is_end = item.is_end();
  Instant arrives = std::max(comes + item.delay, last_arrival_);
  if (is_end) arrives = std::max(arrives, last_stream_arrival_);
  const bool is_lost = pipe_->vanishes[side_] || wire_->dark.contains(route_.second);
  if (item.frame && !is_lost) arrive_in_parts(*item.frame, leaves, arrives);
  Instant& last = streams ? last_stream_arrival_ : last_arrival_;
  last = std::max(last, arrives);
  if (is_end) {
    const Instant flushed = std::min(leaves, *cutoff_);
    wire_->runtime.schedule(
        route_.first, flushed,
        [self = shared_from_this()] { self->finish({ErrorCode::kStopped, "closed by this end"}); },
        socket() | kSimSocketEnd);
  } else {
    in_flight_.push_back({leaves, bytes, cutoff_});
    in_flight_bytes_ += bytes;
  }
  if (is_lost) return;
  if (pipe_->over[1 - side_]) {
    if (!pipe_->vanishes[1 - side_]) be_reset(arrives + wire_->link_of(route_).latency);
    return;
  }
  wire_->runtime.schedule(
      route_.second, arrives,
      [twin = twin_, leaves, cutoff = cutoff_, item = std::move(item)]() mutable {
        if (!item.is_end() && leaves > *cutoff) return;
        if (const auto self = twin.lock()) self->arrived(std::move(item));
      },
      is_end ? twin_socket_ | kSimSocketEnd : twin_socket_);
}

// What the link's rate makes of a payload: how long it takes, and where it stands on the way.
void SimConnection::arrive_in_parts(Frame& frame, Instant leaves, Instant arrives) {
  const double rate = wire_->link_of(route_).bytes_per_second;
  const std::uint64_t bytes = frame.payload_bytes();
  if (rate <= 0 || bytes == 0) return;
  const std::uint64_t charged =
      wire_->options.charged_bytes ? wire_->bytes_of(route_, frame) : bytes;
  frame.received_over = from_seconds(static_cast<double>(charged) / rate);
  if (bytes < wire_->options.arrival_bytes_min) return;
  join_payload(frame);
  for (std::uint64_t quarter = 1; quarter < 4; ++quarter) {
    const Instant when = arrives - frame.received_over * (4 - quarter) / 4;
    wire_->runtime.schedule(
        route_.second, std::max({when, last_arrival_, wire_->runtime.now()}),
        [twin = twin_, leaves, cutoff = cutoff_, frame, quarter] {
          const auto self = twin.lock();
          if (leaves <= *cutoff && self) self->arriving(frame, frame.payload_bytes() * quarter / 4);
        },
        twin_socket_);
  }
}

void SimConnection::arrived(Item item) {
  if (closed_) return;
  inbox_.push_back(std::move(item));
  if (greeting_) return hear();
  if (started_) drain();
}

void SimConnection::arriving(const Frame& frame, std::uint64_t bytes) {
  if (!started_ || ending_ || !inbox_.empty() || !handlers_.on_arriving || !has_room(frame) ||
      joiner_.has_begun())
    return;
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

void SimConnection::drain() {
  const auto self = shared_from_this();
  delivering_ = true;
  while (!inbox_.empty() && !ending_) {
    Item item = std::move(inbox_.front());
    inbox_.pop_front();
    if (item.words) continue;  // of a greeting that is over
    if (!item.frame) {
      ending_ = true;
      delivering_ = false;
      return finish({ErrorCode::kPeerGone, "closed by the other end"});
    }
    if (item.damaged) {
      delivering_ = false;
      return break_off({ErrorCode::kCorrupt, "frame does not match its hash"});
    }
    if (!has_room(*item.frame)) {
      SWARMLINE_MARK("sim.no_room");
      delivering_ = false;
      return break_off({ErrorCode::kCorrupt, "a frame larger than is taken here"});
    }
    deliver(std::move(*item.frame));
  }
  delivering_ = false;
  if (closed_) handlers_ = {};
}

void SimConnection::deliver(Frame frame) {
  const SimRoute from_to{route_.second, route_.first};
  const std::uint64_t bytes = wire_->bytes_of(from_to, frame);
  ++counters_.frames_received;
  counters_.bytes_received += bytes;
  ++delivered_->frames;
  delivered_->bytes += bytes;
  wire_->runtime.trace(std::uint64_t{route_.second} << 16 | frame.kind);
  wire_->runtime.trace(bytes);
  wire_->runtime.trace(xxh3(as_bytes(frame.meta)));
  join_payload(frame);
  if (wire_->tap) wire_->tap(route_.second, route_.first, frame);
  const FrameRoom room = bounds_.room(frame.kind);
  Result<std::optional<Frame>> message = joiner_.take(std::move(frame), room);
  if (!message) return break_off(message.error());
  if (*message && handlers_.on_frame) handlers_.on_frame(std::move(**message));
}

void SimConnection::notify_twin() {
  if (pipe_->vanishes[side_] || pipe_->over[side_]) return;
  wire_->when_open(route_, [wire = wire_, route = route_, twin = twin_, socket = twin_socket_,
                            last = last_arrival_] {
    const Instant arrives = std::max(wire->runtime.now() + wire->link_of(route).latency, last);
    wire->runtime.schedule(
        route.second, arrives,
        [twin] {
          if (const auto self = twin.lock()) self->arrived({});
        },
        socket | kSimSocketEnd);
  });
}

void SimConnection::finish(const Error& error) {
  if (closed_) return;
  if (!started_) {  // nobody listens: no callback is due until start()
    if (!early_end_) early_end_ = error;
    if (const auto greeting = std::exchange(greeting_, std::nullopt)) greeting->on_ended(error);
    return;
  }
  closed_ = ending_ = true;
  wire_->runtime.cancel(user_timer_);
  const auto self = shared_from_this();
  wire_->ends.erase(id_);
  inbox_.clear();
  const Handlers handlers = std::exchange(handlers_, {});
  if (handlers.on_closed) handlers.on_closed(error);
}

}  // namespace swarmline
