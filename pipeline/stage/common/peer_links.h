// The links of one peer to others: dials on demand, accepts, and says who is at the other end. A
// link serves both ways, whichever end dialled it (dials.h).
// Every link begins with the dialler's LinkHello; a link that names another run, era or seat is
// closed and counted, and so is one whose key is not that seat's, where links are authenticated.
//   Order:   frames sent to one peer arrive in order as long as the link lives.
//   Thread:  control thread.
//   Payloads: a hello offers other ways for them, where there is a bulk door; the other end answers
//             with the one that it takes, or not at all (engine/net/bulk/bulk_connection.h).
//   Strangers: a link whose hello does not prove that a member of the run says it is closed. A
//            living link gives way to another of the same seat only from the same host, or from
//            where that seat is known to be, or whose key is that seat's.
//   Errors:  on_lost once per link that broke, never for links closed here. kNotFound: nobody
//            listens at the peer's address, and it does not call either. kIo: this end can open no
//            connection.
//   Bounds:  one dialled and one accepted link per peer, Limits::peers_max accepted ones; unsent
//            bytes bounded by the network.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/callback_guard.h"
#include "base/ids.h"
#include "base/line_rate.h"
#include "engine/net/bulk/bulk_connection.h"
#include "engine/net/network.h"
#include "engine/runtime/runtime.h"
#include "pipeline/protocol/message_kinds.h"
#include "pipeline/stage/common/dials.h"

namespace swarmline {

struct LinkIdentity {
  Term term;
  Era era;
  std::string run_id;
  std::string link_key;  // of the run's members (pipeline/protocol/seat_proof.h); empty: none
  Seat self;
};

// What becomes of a link that something is to be said over.
enum class LinkNews : std::uint8_t {
  kMade,
  kLate,  // nobody has answered for knobs().call_after; it is dialled on
  kNone,  // neither end reaches the other, over no relay: on_lost follows
};

class PeerLinks {
 public:
  // Of so many peers, or of twice those that it knows not to be gone, it keeps the address.
  static constexpr std::size_t kAddressesKept = 256;
  static constexpr std::size_t kFencesMax = 1 << 16;  // of the newest peers

  struct Handlers {
    std::function<void(const Seat& from, Frame)> on_frame;
    std::function<void(const Seat& peer, const Error&)> on_lost;
    std::function<void(const Seat& from, const Arrival&)> on_arriving = {};  // may be empty
    // Another link of that seat came in the place of this one; what was on its way over it is lost.
    std::function<void(const Seat& from)> on_replaced = {};        // may be empty
    std::function<void(const Seat& peer, LinkNews)> on_news = {};  // may be empty
    // As in dials.h; may be empty.
    std::function<bool(const Seat&)> ask_for_call = {};
    std::function<void(const Seat&)> on_call_failed = {};
  };

  // `bulk` outlives the links; null: payloads travel with their frames.
  PeerLinks(Runtime& runtime, Network& network, Duration connect_timeout, Handlers handlers,
            BulkDoor* bulk = nullptr);
  ~PeerLinks();

  Result<Address> listen(const Address& address);
  void set_identity(LinkIdentity identity);
  void set_address(const Seat& peer, const std::string& address);
  // Uses the dialled link, else the accepted one, else dials. The peer's address must be known.
  // What is sent to this peer's own seat comes back to it; what is sent to a seat that a link shows
  // to be over is dropped.
  void send(const Seat& to, Frame frame);
  // The same of a frame whose payload may be lent for this call.
  void send_lent(const Seat& to, Frame frame);
  // The same without a word to say: on_news follows. False: it does not, as there is a link, or the
  // seat is over.
  bool reach(const Seat& to);
  // That peer has no link to this one, and waits for one: what was here of it is over (on_lost),
  // unless it is younger than knobs().call_grace.
  void call(const Seat& to, const std::string& address);
  // Neither reaches the other: they meet at a relay. As for call().
  void meet(const Seat& to, const Meeting& meeting);
  void nobody_calls(const Seat& to) { dials_.nobody_calls(to); }  // neither end reaches the other
  // Bad bytes of that peer's: closes its links; on_lost follows with `why`.
  void disconnect(const Seat& peer, const Error& why);
  // The seat is over: its links are closed, what is sent to it is dropped, and no link from it or
  // an earlier incarnation is taken. on_lost does not follow.
  void fence(const Seat& seat);
  bool fenced(const Seat& seat) const;  // it is over, or a later one of that peer is
  // Closes all links and forgets who was fenced: this peer asks for a new seat.
  void reset();
  void close_all();
  std::size_t count() const {
    return dialled_.size() + dials_.count() + accepted_.size() + ungreeted_.size();
  }
  std::size_t addresses() const { return addresses_.size(); }
  std::size_t fences() const { return fenced_.size(); }
  std::uint64_t rejected_links() const { return rejected_links_; }
  std::uint64_t bytes_sent() const;
  std::uint64_t unsent_bytes(const Seat& to) const;
  // What is sent to that peer now goes through memory that both have.
  bool shares_memory(const Seat& to) const;
  // Over a relay goes what is sent to that peer; all that is, and was.
  bool is_relayed(const Seat& to) const;
  std::uint32_t relayed_links() const;
  std::uint64_t relayed_bytes_sent() const;

 private:
  struct Link {
    std::shared_ptr<Connection> connection;
    Seat seat;  // of the other end
    Instant since{};
  };

  void accept(std::shared_ptr<Connection> connection);
  std::shared_ptr<BulkConnection> with_bulk(std::shared_ptr<Connection>& connection) const;
  void greet(const std::shared_ptr<Connection>& connection, const std::shared_ptr<Seat>& from,
             Frame frame);
  static void answer(BulkConnection& bulk, const std::string& offer);
  void take_answer(const Seat& from, BulkConnection& bulk, const Frame& frame);
  bool may_replace(const Link& link, const Connection& newer) const;
  Result<Address> address_of(const Seat& peer) const;
  bool makes_way_for(const Seat& to);
  void dialled(const Seat& to, std::shared_ptr<Connection> connection, std::vector<Frame> waiting);
  void lost(std::map<PeerId, Link>& links, const Seat& peer, const Connection* connection,
            const Error& error);
  void forget(std::map<PeerId, Link>& links, PeerId peer);
  bool drop_earlier(const Seat& to);
  Connection* open_way(const Seat& to) const;
  const Link* link_to(PeerId peer) const;  // that serves; null: none
  void count_closed(const Connection& connection);
  void say(const Seat& peer, LinkNews news) const {
    if (handlers_.on_news) handlers_.on_news(peer, news);
  }
  Frame hello_for(const Seat& to, const std::string& bulk_offer) const;
  void forget_addresses();

  Runtime& runtime_;
  Network& network_;
  BulkDoor* const bulk_;
  Handlers handlers_;
  LinkIdentity identity_;
  Dials dials_;

  struct Place {
    Incarnation incarnation;
    std::string address;
  };
  std::map<PeerId, Place> addresses_;
  std::size_t addresses_swept_at_ = kAddressesKept;  // so many
  std::map<PeerId, Incarnation> fenced_;             // the highest
  std::map<PeerId, Link> dialled_;
  std::map<PeerId, Link> accepted_;
  std::vector<std::shared_ptr<Connection>> ungreeted_;
  std::uint64_t rejected_links_ = 0;
  LineRate rejected_lines_;
  std::uint64_t bytes_of_closed_links_ = 0;
  std::uint64_t relayed_bytes_of_closed_links_ = 0;
  bool closed_ = false;  // for good
  CallbackGuard guard_;  // callbacks of a network may outlive this object
};

}  // namespace swarmline
