#include "pipeline/stage/common/peer_links.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/marks.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_bounds.h"
#include "pipeline/protocol/seat_proof.h"

namespace swarmline {

namespace {
// All that it averages with may dial at once, those who share an embedding, too.
constexpr std::size_t kUngreetedLinksMax = 2 * std::size_t{Limits::stage_peers_max};

std::string host_of(const std::string& address) {
  const auto parsed = parse_address(address);
  return parsed ? parsed->host : address;
}

std::optional<std::string> offer_of(const Frame& hello) {
  auto parsed = parse<wire::LinkHello>(hello);
  if (!parsed || parsed->bulk().empty()) return std::nullopt;
  return std::move(*parsed->mutable_bulk());
}
}  // namespace

PeerLinks::PeerLinks(Runtime& runtime, Network& network, Duration connect_timeout,
                     Handlers handlers, BulkDoor* bulk)
    : runtime_(runtime),
      network_(network),
      bulk_(bulk),
      handlers_(std::move(handlers)),
      dials_(
          runtime, network, connect_timeout,
          {.address_of = [this](const Seat& peer) { return address_of(peer); },
           .on_made =
               [this](const Seat& to, const std::shared_ptr<Connection>& connection,
                      std::vector<Frame> waiting) { dialled(to, connection, std::move(waiting)); },
           .on_failed =
               [this](const Seat& to, const Error& error) {
                 say(to, LinkNews::kNone);
                 handlers_.on_lost(to, error);
               },
           .ask_for_call =
               [this](const Seat& to) {
                 const auto link = accepted_.find(to.peer);
                 if (link == accepted_.end() || link->second.seat != to)
                   return handlers_.ask_for_call && handlers_.ask_for_call(to);
                 // It has dialled itself meanwhile.
                 runtime_.post(guard_.wrap([this, to, connection = link->second.connection] {
                   const auto still = accepted_.find(to.peer);
                   if (still == accepted_.end() || still->second.connection != connection)
                     return dials_.nobody_calls(to);
                   SWARMLINE_MARK("links.came_meanwhile");
                   if (auto waiting = dials_.take(to))
                     for (Frame& waits : *waiting) connection->send(std::move(waits));
                 }));
                 return true;
               },
           .on_call_failed = handlers_.on_call_failed,
           .on_late =
               [this](const Seat& to) {
                 if (link_to(to.peer) == nullptr) say(to, LinkNews::kLate);
               }}) {}

PeerLinks::~PeerLinks() {
  close_all();
}

Result<Address> PeerLinks::listen(const Address& address) {
  return network_.listen(address, guard_.wrap([this](std::shared_ptr<Connection> connection) {
    accept(std::move(connection));
  }));
}

void PeerLinks::set_identity(LinkIdentity identity) {
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

// Puts one over the connection, in its place; null: there is no door.
std::shared_ptr<BulkConnection> PeerLinks::with_bulk(
    std::shared_ptr<Connection>& connection) const {
  if (bulk_ == nullptr) return nullptr;
  auto over = bulk_->over(std::move(connection));
  connection = over;
  return over;
}

void PeerLinks::answer(BulkConnection& bulk, const std::string& offer) {
  wire::LinkAnswer answer;
  answer.set_bulk(bulk.answer(offer));
  if (!answer.bulk().empty()) bulk.send(make_frame(MessageKind::kLinkAnswer, answer));
}

void PeerLinks::take_answer(const Seat& from, BulkConnection& bulk, const Frame& frame) {
  const auto answer = parse<wire::LinkAnswer>(frame);
  const Result<void> taken =
      answer ? bulk.take_answer(answer->bulk()) : std::unexpected(answer.error());
  if (!taken) disconnect(from, taken.error());
}

void PeerLinks::accept(std::shared_ptr<Connection> connection) {
  if (ungreeted_.size() >= kUngreetedLinksMax) {
    ++rejected_links_;
    return refuse_link(connection);
  }
  const std::weak_ptr<BulkConnection> bulk = with_bulk(connection);
  ungreeted_.push_back(connection);
  auto from = std::make_shared<Seat>();
  std::weak_ptr<Connection> link = connection;
  connection->start({
      .on_frame = guard_.wrap([this, link, bulk, from](Frame frame) {
        auto alive_link = link.lock();
        if (!alive_link) return;
        if (from->peer.value == 0) {
          const auto offer = bulk.expired() ? std::nullopt : offer_of(frame);
          greet(alive_link, from, std::move(frame));
          if (const auto over = bulk.lock(); over && offer && from->peer.value != 0)
            answer(*over, *offer);
          return;
        }
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
  const bool gives_way = before == accepted_.end() || may_replace(before->second, *connection);
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
  link.since = runtime_.now();
  if (replaced) {
    SWARMLINE_MARK("links.replaced");
    count_closed(*replaced);
    replaced->close();
    if (handlers_.on_replaced) handlers_.on_replaced(*from);
  }
  if (auto waiting = dials_.take(*from))
    for (Frame& waits : *waiting) connection->send(std::move(waits));
  say(*from, LinkNews::kMade);
}

// Its end may have been lost, and nobody told this one: it dials again from where it was.
bool PeerLinks::may_replace(const Link& link, const Connection& newer) const {
  if (!newer.admitted_as().empty()) return true;  // it is that seat, wherever it is now
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
  if (const auto to = dials_.under_way(seat.peer); !to || fenced(*to)) dials_.forget(seat.peer);
}

void PeerLinks::reset() {
  for (auto* links : {&dialled_, &accepted_})
    while (!links->empty()) forget(*links, links->begin()->first);
  dials_.clear();
  fenced_.clear();
  addresses_.clear();
}

Frame PeerLinks::hello_for(const Seat& to, const std::string& bulk_offer) const {
  wire::LinkHello hello;
  hello.set_term(identity_.term.value);
  hello.set_era(identity_.era.value);
  hello.set_run_id(identity_.run_id);
  *hello.mutable_from() = to_wire(identity_.self);
  *hello.mutable_to() = to_wire(to);
  hello.set_bulk(bulk_offer);
  if (!identity_.link_key.empty()) hello.set_proof(link_proof(identity_.link_key, hello));
  return make_frame(MessageKind::kLinkHello, hello);
}

// What is there of an earlier seat of that peer. False: there is something of a later one, we only
// have not been told yet.
bool PeerLinks::drop_earlier(const Seat& to) {
  for (auto* links : {&dialled_, &accepted_}) {
    const auto it = links->find(to.peer);
    if (it == links->end()) continue;
    const Incarnation linked = it->second.seat.incarnation;
    if (linked > to.incarnation) return false;
    if (linked < to.incarnation) forget(*links, to.peer);
  }
  if (const auto dials_to = dials_.under_way(to.peer)) {
    if (dials_to->incarnation > to.incarnation) return false;
    if (dials_to->incarnation < to.incarnation) dials_.forget(to.peer);
  }
  return true;
}

void PeerLinks::send(const Seat& to, Frame frame) {
  if (closed_ || fenced(to)) return;
  if (to == identity_.self) {
    runtime_.post(
        guard_.wrap([this, to, frame = std::move(frame)] { handlers_.on_frame(to, frame); }));
    return;
  }
  if (!drop_earlier(to)) return;
  if (Connection* const connection = open_way(to)) return connection->send(std::move(frame));
  dials_.send(to, std::move(frame));
}

void PeerLinks::send_lent(const Seat& to, Frame frame) {
  if (!closed_ && !fenced(to) && to != identity_.self && drop_earlier(to))
    if (Connection* const connection = open_way(to)) return connection->send_lent(std::move(frame));
  frame.keep_payload();
  send(to, std::move(frame));
}

bool PeerLinks::shares_memory(const Seat& to) const {
  const Connection* const connection = open_way(to);
  return connection != nullptr && connection->shares_memory();
}

// Null: it is dialled, or is to be.
Connection* PeerLinks::open_way(const Seat& to) const {
  if (auto it = dialled_.find(to.peer); it != dialled_.end()) return it->second.connection.get();
  if (!dials_.under_way(to.peer))
    if (auto it = accepted_.find(to.peer); it != accepted_.end())
      return it->second.connection.get();
  return nullptr;
}

Result<Address> PeerLinks::address_of(const Seat& peer) const {
  const auto known = addresses_.find(peer.peer);
  return parse_address(known == addresses_.end() ? "" : known->second.address);
}

void PeerLinks::dialled(const Seat& to, std::shared_ptr<Connection> connection,
                        std::vector<Frame> waiting) {
  const std::shared_ptr<BulkConnection> bulk = with_bulk(connection);
  connection->start({
      .on_frame = guard_.wrap([this, to, weak = std::weak_ptr(bulk)](Frame frame) {
        const auto over = weak.lock();
        if (over && kind_of(frame) == MessageKind::kLinkAnswer)
          return take_answer(to, *over, frame);
        handlers_.on_frame(to, std::move(frame));
      }),
      .on_closed = guard_.wrap([this, to, raw = connection.get()](const Error& error) {
        lost(dialled_, to, raw, error);
      }),
      .on_arriving = guard_.wrap([this, to](const Arrival& arrival) {
        if (handlers_.on_arriving) handlers_.on_arriving(to, arrival);
      }),
  });
  connection->believe(bounds_of_mate());
  dialled_[to.peer] = {.connection = connection, .seat = to, .since = runtime_.now()};
  connection->send(hello_for(to, bulk ? bulk->offer() : std::string()));
  for (Frame& frame : waiting) connection->send(std::move(frame));
  say(to, LinkNews::kMade);
}

bool PeerLinks::reach(const Seat& to) {
  if (closed_ || fenced(to) || to == identity_.self || !drop_earlier(to) || link_to(to.peer))
    return false;
  dials_.reach(to);
  return true;
}

// Its end has no link to this one: what is here of it is over, unless it is young.
bool PeerLinks::makes_way_for(const Seat& to) {
  if (closed_ || fenced(to) || to.peer == identity_.self.peer) return false;
  bool had_link = false;
  for (auto* links : {&dialled_, &accepted_}) {
    const auto link = links->find(to.peer);
    if (link == links->end()) continue;
    if (link->second.seat.incarnation > to.incarnation) return false;
    if (link->second.seat == to && runtime_.now() - link->second.since < knobs().call_grace) {
      SWARMLINE_MARK("links.called_too_late");
      return false;
    }
    had_link = had_link || link->second.seat == to;
  }
  forget(dialled_, to.peer);
  forget(accepted_, to.peer);
  if (had_link) {
    SWARMLINE_MARK("links.other_end_has_none");
    handlers_.on_lost(to, {ErrorCode::kPeerGone, "its end has no link to this peer any more"});
  }
  return true;
}

void PeerLinks::call(const Seat& to, const std::string& address) {
  if (!makes_way_for(to)) return;
  set_address(to, address);
  dials_.call(to);
}

void PeerLinks::meet(const Seat& to, const Meeting& meeting) {
  if (!makes_way_for(to)) return;
  if (meeting.dials) return dials_.meet(to, meeting);
  network_.meet(meeting, knobs().call_time / 4 * 3,
                [this, alive = guard_.watch()](Result<std::shared_ptr<Connection>> made) {
                  if (!made) return;
                  alive.expired() ? refuse_link(*made) : accept(std::move(*made));
                });
}

void PeerLinks::lost(std::map<PeerId, Link>& links, const Seat& peer, const Connection* connection,
                     const Error& error) {
  auto it = links.find(peer.peer);
  if (it == links.end() || it->second.connection.get() != connection || it->second.seat != peer)
    return;
  if (connection) count_closed(*connection);
  if (&links == &dialled_) dials_.ended(peer.peer, runtime_.now() - it->second.since);
  links.erase(it);
  handlers_.on_lost(peer, error);
}

void PeerLinks::forget(std::map<PeerId, Link>& links, PeerId peer) {
  auto link = links.extract(peer);
  if (link.empty()) return;
  count_closed(*link.mapped().connection);
  link.mapped().connection->close();
}

void PeerLinks::disconnect(const Seat& peer, const Error& why) {
  log(LogLevel::kWarn, "disconnecting {}: {}", to_string(peer), why.what);
  const bool had_link = dialled_.contains(peer.peer) || accepted_.contains(peer.peer) ||
                        dials_.under_way(peer.peer).has_value();
  // Forgotten before anybody hears of it: what is sent from there dials anew.
  forget(dialled_, peer.peer);
  forget(accepted_, peer.peer);
  dials_.give_up(peer.peer);
  if (had_link) handlers_.on_lost(peer, why);
}

void PeerLinks::close_all() {
  closed_ = true;
  guard_.drop_callbacks();
  for (auto* links : {&dialled_, &accepted_})
    for (auto& [peer, link] : *links) link.connection->close();
  dials_.stop();
  dialled_.clear();
  accepted_.clear();
  for (const auto& connection : ungreeted_) connection->close();
  ungreeted_.clear();
}

std::uint64_t PeerLinks::unsent_bytes(const Seat& to) const {
  std::uint64_t bytes = 0;
  for (const auto* links : {&dialled_, &accepted_})
    if (const auto it = links->find(to.peer); it != links->end())
      bytes += it->second.connection->unsent_bytes();
  return bytes;
}

std::uint64_t PeerLinks::bytes_sent() const {
  std::uint64_t bytes = bytes_of_closed_links_;
  for (const auto* links : {&dialled_, &accepted_})
    for (const auto& [peer, link] : *links) bytes += link.connection->counters().bytes_sent;
  return bytes;
}

void PeerLinks::count_closed(const Connection& connection) {
  const std::uint64_t bytes = connection.counters().bytes_sent;
  bytes_of_closed_links_ += bytes;
  if (connection.is_relayed()) relayed_bytes_of_closed_links_ += bytes;
}

const PeerLinks::Link* PeerLinks::link_to(PeerId peer) const {
  for (const auto* links : {&dialled_, &accepted_})
    if (const auto it = links->find(peer); it != links->end()) return &it->second;
  return nullptr;
}

bool PeerLinks::is_relayed(const Seat& to) const {
  const Link* const link = link_to(to.peer);
  return link != nullptr && link->connection->is_relayed();
}

std::uint32_t PeerLinks::relayed_links() const {
  std::uint32_t count = 0;
  for (const auto* links : {&dialled_, &accepted_})
    for (const auto& [peer, link] : *links) count += link.connection->is_relayed() ? 1 : 0;
  return count;
}

std::uint64_t PeerLinks::relayed_bytes_sent() const {
  std::uint64_t bytes = relayed_bytes_of_closed_links_;
  for (const auto* links : {&dialled_, &accepted_})
    for (const auto& [peer, link] : *links)
      if (link.connection->is_relayed()) bytes += link.connection->counters().bytes_sent;
  return bytes;
}

}  // namespace swarmline
