#include "pipeline/stage/common/peer_links.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/marks.h"
#include "pipeline/protocol/message_bounds.h"
#include "pipeline/protocol/seat_proof.h"

namespace swarmline {

namespace {
// All that it averages with may dial at once, those who share an embedding, too.
constexpr std::size_t kUngreetedLinksMax = 2 * std::size_t{Limits::stage_peers_max};
constexpr std::size_t kFramesWaitingForDialMax = 4096;

// Closes a connection that nobody listens to.
void refuse_link(const std::shared_ptr<Connection>& connection) {
  connection->start({.on_frame = [](Frame) {}, .on_closed = [](Error) {}});
  connection->close();
}

// Where links are authenticated, this end's guard has found out whose seat the other's key is.
bool is_seat_of(const Connection& connection, const Seat& seat) {
  const std::string proven = connection.admitted_as();
  return proven.empty() || proven == to_string(seat);
}

std::string host_of(const std::string& address) {
  const auto parsed = parse_address(address);
  return parsed ? parsed->host : address;
}

// A name that this end does not find says nothing of the other.
Error not_reached(const Error& error) {
  if (error.code == ErrorCode::kPeerGone) return {ErrorCode::kNotFound, error.what};
  if (error.code == ErrorCode::kNotFound) return {ErrorCode::kPeerGone, error.what};
  return error;
}
}  // namespace

PeerLinks::PeerLinks(Runtime& runtime, Network& network, Duration connect_timeout,
                     Handlers handlers)
    : runtime_(runtime),
      network_(network),
      connect_timeout_(connect_timeout),
      handlers_(std::move(handlers)) {}

PeerLinks::~PeerLinks() {
  close_all();
}

Result<Address> PeerLinks::listen(const Address& address) {
  return network_.listen(address, guard_.wrap([this](std::shared_ptr<Connection> connection) {
    accept(std::move(connection));
  }));
}

void PeerLinks::set_identity(RunIdentity identity) {
  identity_ = std::move(identity);
}

void PeerLinks::set_address(const Seat& peer, const std::string& address) {
  addresses_[peer.peer] = {peer.incarnation, address};
  if (addresses_.size() > addresses_swept_at_) forget_addresses();
}

// Until there are many they are kept: most that lose a seat are back at the same address.
void PeerLinks::forget_addresses() {
  std::erase_if(addresses_, [this](const auto& entry) {
    return fenced({entry.first, StageId{}, entry.second.incarnation});
  });
  addresses_swept_at_ = std::max(kAddressesKept, 2 * addresses_.size());
}

void PeerLinks::accept(std::shared_ptr<Connection> connection) {
  if (ungreeted_.size() >= kUngreetedLinksMax) {
    ++rejected_links_;
    return refuse_link(connection);
  }
  ungreeted_.push_back(connection);
  auto from = std::make_shared<Seat>();
  std::weak_ptr<Connection> link = connection;
  connection->start({
      .on_frame = guard_.wrap([this, link, from](Frame frame) {
        auto alive_link = link.lock();
        if (!alive_link) return;
        if (from->peer.value == 0) return greet(alive_link, from, std::move(frame));
        handlers_.on_frame(*from, std::move(frame));
      }),
      .on_closed = guard_.wrap([this, link, from](const Error& error) {
        std::erase_if(ungreeted_, [&](const auto& c) { return c == link.lock(); });
        if (from->peer.value != 0) lost(accepted_, *from, link.lock().get(), error);
      }),
      .on_arriving = guard_.wrap([this, from](const Arrival& arrival) {
        if (from->peer.value != 0 && handlers_.on_arriving) handlers_.on_arriving(*from, arrival);
      }),
      .stranger = bounds_before_link_hello(),
  });
}

void PeerLinks::greet(const std::shared_ptr<Connection>& connection,
                      const std::shared_ptr<Seat>& from, Frame frame) {
  std::erase(ungreeted_, connection);
  auto hello = parse<wire::LinkHello>(frame);
  const bool fits =
      kind_of(frame) == MessageKind::kLinkHello && hello && hello->run_id() == identity_.run_id &&
      hello->era() == identity_.era.value && from_wire(hello->to()) == identity_.self &&
      hello->from().peer() != 0 && hello->from().peer() != identity_.self.peer.value &&
      !fenced(from_wire(hello->from())) && is_seat_of(*connection, from_wire(hello->from())) &&
      proves_membership(identity_.link_key, *hello);
  const bool room = accepted_.size() < static_cast<std::size_t>(Limits::peers_max) ||
                    (hello && accepted_.contains(PeerId{hello->from().peer()}));
  const auto before = hello ? accepted_.find(PeerId{hello->from().peer()}) : accepted_.end();
  const bool gives_way = before == accepted_.end() || !before->second.connection ||
                         may_replace(before->second, *connection);
  if (fits && !gives_way) SWARMLINE_MARK("links.not_replaced");
  if (!fits || !room || !gives_way) {
    ++rejected_links_;
    if (const auto times = rejected_lines_.happened(runtime_.now()))
      log(LogLevel::kWarn,
          "closed a link from {}: it does not belong to this run and seat ({} such)",
          connection->remote(), times);
    connection->close();
    return;
  }
  connection->believe(bounds_of_mate());
  *from = from_wire(hello->from());
  Link& link = accepted_[from->peer];
  const std::shared_ptr<Connection> replaced = std::exchange(link.connection, connection);
  link.seat = *from;
  if (!replaced) return;
  SWARMLINE_MARK("links.replaced");
  bytes_of_closed_links_ += replaced->counters().bytes_sent;
  replaced->close();
  if (handlers_.on_replaced) handlers_.on_replaced(*from);
}

// Its end may have been lost, and nobody told this one: it dials again from where it was.
bool PeerLinks::may_replace(const Link& link, const Connection& newer) const {
  const std::string host = host_of(newer.remote());
  if (host == host_of(link.connection->remote())) return true;
  const auto known = addresses_.find(link.seat.peer);
  return known != addresses_.end() && host == host_of(known->second.address);
}

bool PeerLinks::fenced(const Seat& seat) const {
  const auto it = fenced_.find(seat.peer);
  return it != fenced_.end() && seat.incarnation <= it->second;
}

void PeerLinks::fence(const Seat& seat) {
  Incarnation& last = fenced_[seat.peer];
  last = std::max(last, seat.incarnation);
  if (fenced_.size() > kFencesMax) fenced_.erase(fenced_.begin());  // whoever came first
  for (auto* links : {&dialled_, &accepted_})
    if (auto it = links->find(seat.peer); it != links->end() && fenced(it->second.seat))
      forget(*links, seat.peer);
}

void PeerLinks::reset() {
  for (auto* links : {&dialled_, &accepted_})
    while (!links->empty()) forget(*links, links->begin()->first);
  fenced_.clear();
  addresses_.clear();
}

Frame PeerLinks::hello_for(const Seat& to) const {
  wire::LinkHello hello;
  hello.set_term(identity_.term.value);
  hello.set_era(identity_.era.value);
  hello.set_run_id(identity_.run_id);
  *hello.mutable_from() = to_wire(identity_.self);
  *hello.mutable_to() = to_wire(to);
  if (!identity_.link_key.empty()) hello.set_proof(link_proof(identity_.link_key, hello));
  return make_frame(MessageKind::kLinkHello, hello);
}

void PeerLinks::send(const Seat& to, Frame frame) {
  if (closed_ || fenced(to)) return;
  if (to == identity_.self) {
    runtime_.post(
        guard_.wrap([this, to, frame = std::move(frame)] { handlers_.on_frame(to, frame); }));
    return;
  }
  for (auto* links : {&dialled_, &accepted_}) {
    const auto it = links->find(to.peer);
    if (it == links->end()) continue;
    const Incarnation linked = it->second.seat.incarnation;
    if (linked > to.incarnation) return;  // that seat is over, we only have not been told yet
    if (linked < to.incarnation) forget(*links, to.peer);
  }
  if (auto it = dialled_.find(to.peer); it != dialled_.end()) {
    Link& link = it->second;
    if (link.connection) return link.connection->send(std::move(frame));
    // A peer that makes us say so much while we can't reach it loses what is beyond: its timers and
    // ours cover that.
    if (link.waiting.size() < kFramesWaitingForDialMax) link.waiting.push_back(std::move(frame));
    return;
  }
  if (auto it = accepted_.find(to.peer); it != accepted_.end())
    return it->second.connection->send(std::move(frame));
  Link& link = dialled_[to.peer];
  link.seat = to;
  link.waiting.push_back(std::move(frame));
  dial(to);
}

void PeerLinks::dial(const Seat& to) {
  const auto known = addresses_.find(to.peer);
  auto address = parse_address(known == addresses_.end() ? "" : known->second.address);
  if (!address) {
    runtime_.post(
        guard_.wrap([this, to, error = address.error()] { lost(dialled_, to, nullptr, error); }));
    return;
  }
  network_.connect(*address, connect_timeout_,
                   [this, alive = guard_.watch(), to](Result<std::shared_ptr<Connection>> made) {
                     if (alive.expired()) {
                       if (made) refuse_link(*made);
                       return;
                     }
                     if (!made) return lost(dialled_, to, nullptr, not_reached(made.error()));
                     dialled(to, *made);
                   });
}

void PeerLinks::dialled(const Seat& to, const std::shared_ptr<Connection>& connection) {
  auto it = dialled_.find(to.peer);
  // Forgotten meanwhile, or dialled again and that one was quicker.
  if (it == dialled_.end() || it->second.connection || it->second.seat != to)
    return refuse_link(connection);
  if (!is_seat_of(*connection, to)) {
    SWARMLINE_MARK("links.another_seat_answers");
    refuse_link(connection);
    return lost(dialled_, to, nullptr,
                {ErrorCode::kDeadline, fmt::format("{} answers at the address of {}",
                                                   connection->admitted_as(), to_string(to))});
  }
  connection->start({
      .on_frame =
          guard_.wrap([this, to](Frame frame) { handlers_.on_frame(to, std::move(frame)); }),
      .on_closed = guard_.wrap([this, to, raw = connection.get()](const Error& error) {
        lost(dialled_, to, raw, error);
      }),
      .on_arriving = guard_.wrap([this, to](const Arrival& arrival) {
        if (handlers_.on_arriving) handlers_.on_arriving(to, arrival);
      }),
  });
  connection->believe(bounds_of_mate());
  it->second.connection = connection;
  connection->send(hello_for(to));
  for (Frame& frame : it->second.waiting) connection->send(std::move(frame));
  it->second.waiting.clear();
}

void PeerLinks::lost(std::map<PeerId, Link>& links, const Seat& peer, const Connection* connection,
                     const Error& error) {
  auto it = links.find(peer.peer);
  if (it == links.end() || it->second.connection.get() != connection || it->second.seat != peer)
    return;
  if (connection) bytes_of_closed_links_ += connection->counters().bytes_sent;
  links.erase(it);
  handlers_.on_lost(peer, error);
}

void PeerLinks::forget(std::map<PeerId, Link>& links, PeerId peer) {
  auto link = links.extract(peer);
  if (link.empty() || !link.mapped().connection) return;
  bytes_of_closed_links_ += link.mapped().connection->counters().bytes_sent;
  link.mapped().connection->close();
}

void PeerLinks::disconnect(const Seat& peer, const Error& why) {
  log(LogLevel::kWarn, "disconnecting {}: {}", to_string(peer), why.what);
  const bool had_link = dialled_.contains(peer.peer) || accepted_.contains(peer.peer);
  // Forgotten before anybody hears of it: what is sent from there dials anew.
  forget(dialled_, peer.peer);
  forget(accepted_, peer.peer);
  if (had_link) handlers_.on_lost(peer, why);
}

void PeerLinks::close_all() {
  closed_ = true;
  guard_.drop_callbacks();
  for (auto* links : {&dialled_, &accepted_})
    for (auto& [peer, link] : *links)
      if (link.connection) link.connection->close();
  dialled_.clear();
  accepted_.clear();
  for (const auto& connection : ungreeted_) connection->close();
  ungreeted_.clear();
}

std::uint64_t PeerLinks::unsent_bytes(const Seat& to) const {
  std::uint64_t bytes = 0;
  for (const auto* links : {&dialled_, &accepted_})
    if (const auto it = links->find(to.peer); it != links->end() && it->second.connection)
      bytes += it->second.connection->unsent_bytes();
  return bytes;
}

std::uint64_t PeerLinks::bytes_sent() const {
  std::uint64_t bytes = bytes_of_closed_links_;
  for (const auto* links : {&dialled_, &accepted_})
    for (const auto& [peer, link] : *links)
      if (link.connection) bytes += link.connection->counters().bytes_sent;
  return bytes;
}

}  // namespace swarmline
