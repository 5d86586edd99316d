// The second door: bytes between processes. A Connection is an ordered, reliable, bidirectional
// stream of frames; frames of different connections may overtake each other.
//   Ownership: a Connection is shared by its user and the backend; it stays valid until on_closed
//              was delivered and the last reference dropped. Payload parts of a sent frame stay
//              alive until written.
//   Thread:    control thread only.
//   Errors:    send() never fails loudly: a broken connection delivers on_closed exactly once,
//              after which send() is ignored. Bad bytes from the other end close the connection
//              with kCorrupt and are counted.
//   Bounds:    at most Limits::connection_queue_bytes_max unsent bytes, or as ConnectionBounds say;
//              beyond that the connection closes with kRefused. A frame larger than its bounds
//              are ends it with kCorrupt when the header is read, before any memory is taken.
//   Strangers: a connection started with Handlers::stranger is one until believe(). TCP takes
//              Limits::strangers_max of them, strangers_of_host_max from one address: beyond, the
//              one that has said nothing for longest is closed. One that has sent no whole frame
//              for Limits::stranger_patience is closed (kDeadline), and so is one for which memory
//              that all of them share has run out.
//   Backends:  TcpNetwork (plain, or TLS: TcpOptions::guard), SimNetwork.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/limits.h"
#include "base/result.h"
#include "base/units.h"
#include "engine/identity/key_hash.h"
#include "engine/net/frame.h"

namespace swarmline {

struct Address {
  std::string host;  // name or IP literal
  std::uint16_t port = 0;
  auto operator<=>(const Address&) const = default;
};
std::string to_string(const Address& address);
Result<Address> parse_address(std::string_view text);  // "host:port", "[::1]:port"

// Two ends that can't dial each other meet at a relay: both show it one ticket (relay_door.h).
struct Meeting {
  Address relay;
  std::string ticket;
  bool dials = false;  // this end is the one that would have dialled
};

// What a connection takes from its other end, and keeps for it.
struct ConnectionBounds {
  FrameRoom (*room)(std::uint16_t kind) = [](std::uint16_t) { return FrameRoom{}; };
  std::uint64_t unsent_bytes_max = Limits::connection_queue_bytes_max;
};

class Connection {
 public:
  struct Handlers {
    std::function<void(Frame)> on_frame;
    // kPeerGone, kCorrupt, kStopped, or kDeadline: nothing that was sent is acknowledged any more,
    // and nobody knows which end is cut off. Last callback ever.
    std::function<void(Error)> on_closed;
    // May be empty. Of a payload of the backend's arrival_bytes_min or more: some of it has
    // arrived, more than the time before and not all; on_frame or on_closed follows. What is read
    // here is borrowed for the call.
    std::function<void(const Arrival&)> on_arriving = {};
    // Set: nobody knows who is at the other end, and no more than this is taken until believe().
    std::optional<ConnectionBounds> stranger = {};
  };
  struct Counters {
    std::uint64_t bytes_sent = 0, bytes_received = 0, frames_sent = 0, frames_received = 0;
  };

  virtual ~Connection() = default;
  // Must be called once, in the callback that delivered the connection; frames are held back until
  // then.
  virtual void start(Handlers handlers) = 0;
  // The other end has said who it is, and may be believed: it is no stranger any more, and these
  // bounds hold from the next frame on.
  virtual void believe(const ConnectionBounds& bounds) = 0;
  // What of the payload is lent has a Lender, who is this thread's.
  virtual void send(Frame frame) = 0;
  // The same of a frame whose payload may be lent for this call alone: of that, what can't leave at
  // once is copied.
  virtual void send_lent(Frame frame) {
    frame.keep_payload();
    send(std::move(frame));
  }
  // Sends what is queued, then closes; on_closed(kStopped) follows when the other end has it all,
  // at the latest after one second. No frame is delivered any more.
  virtual void close() = 0;
  virtual std::uint64_t unsent_bytes() const = 0;
  virtual Counters counters() const = 0;
  virtual std::string remote() const = 0;  // for people
  // The key that the other end has proven to hold; none: the link is not authenticated.
  virtual std::optional<KeyHash> peer_key() const { return std::nullopt; }
  // What this end's guard took it for (link_guard.h); empty: nobody asked.
  virtual std::string admitted_as() const { return {}; }
  // Its large payloads never leave this machine's memory, where nothing damages them.
  virtual bool shares_memory() const { return false; }
  // Its bytes pass a relay: it was made by Network::meet().
  virtual bool is_relayed() const { return false; }
  // The host part of this end's address, as the other end sees it where nobody translates it;
  // empty: unknown.
  virtual std::string local_host() const { return {}; }
  // HOST:PORT of both, as this end's system has them. Empty: unknown, or who carries this link
  // wants to see all that passes.
  struct Ends {
    std::string own, other;
  };
  virtual Ends ends() const { return {}; }
};
// `advertised`, where its host is all of this end's addresses: the one that this link begins at.
std::string seen_from(const Connection& connection, const std::string& advertised);

class Network {
 public:
  virtual ~Network() = default;
  using Accepted = std::function<void(std::shared_ptr<Connection>)>;
  using Connected = std::function<void(Result<std::shared_ptr<Connection>>)>;

  // Listens on `address` (port 0: any free one) and returns the bound address. kIo with a sentence
  // when taken.
  virtual Result<Address> listen(const Address& address, Accepted on_accepted) = 0;
  // kDeadline, kPeerGone (refused), kNotFound (name), kIo (this end can open no connection, whoever
  // the other is). `on_connected` is called exactly once.
  virtual void connect(const Address& address, Duration timeout, Connected on_connected) = 0;
  // The same as connect() for the end that dials; for the other one as if it had been dialled.
  virtual void meet(const Meeting& meeting, Duration timeout, Connected on_connected) = 0;
  virtual void stop_listening() = 0;
};

}  // namespace swarmline
