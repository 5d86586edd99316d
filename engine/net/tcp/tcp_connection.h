// One TCP connection of a TcpNetwork: a FrameReader on the way in, a queue of gathered writes on
// the way out. For the files of this folder; what users see is Connection.
//   Between keys: bulk is sealed and opened by the network's pool, at most one call for each
//           direction at a time (tcp_connection_elsewhere.cc). What a call uses stays until it is
//           over: the queue's frames and the reader's space are left as they are, and the socket is
//           shut, not closed.
#pragma once

#include <array>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <sys/uio.h>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/thread_pool.hpp>

#include "base/line_rate.h"
#include "engine/net/frame_reader.h"
#include "engine/net/message_pieces.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/net/tcp/tls_lobby.h"
#include "engine/runtime/asio_access.h"

namespace swarmline {

class TcpConnection;

// What a network and its connections share; connections that are not closed yet are listed.
struct TcpShared {
  TcpShared(AsioRuntime& control, TcpOptions given)
      : runtime(control), options(std::move(given)), strangers(options.strangers) {}
  AsioRuntime& runtime;
  TcpOptions options;
  TcpNetwork::Counters counters;
  std::set<TcpConnection*> open;
  Strangers strangers;
  std::map<Strangers::Id, TcpConnection*> stranger_connections;
  LineRate bad_stream_lines, stranger_lines;
  Buffer spare_staging;           // of a reader that rests: most connections do, at any time
  std::optional<TlsLobby> lobby;  // of links that are to be authenticated; none: links are plain
  // Where their bulk is sealed and opened. Its threads begin with the first of it.
  std::optional<boost::asio::thread_pool> pool;
  boost::asio::thread_pool& sealers();
};

class TcpConnection final : public Connection, public std::enable_shared_from_this<TcpConnection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  // Of an authenticated link; a plain one has none.
  struct Secured {
    std::unique_ptr<TlsStream> stream;
    KeyHash key;
    std::string admitted_as;
  };

  TcpConnection(std::shared_ptr<TcpShared> shared, Socket socket, std::string remote,
                bool is_relayed, std::optional<Secured> secured = std::nullopt);
  ~TcpConnection() override;

  void start(Handlers handlers) override;
  void send(Frame frame) override;
  void send_lent(Frame frame) override;
  void believe(const ConnectionBounds& bounds) override;
  void close() override;
  std::uint64_t unsent_bytes() const override { return unsent_bytes_; }
  Counters counters() const override { return counters_; }
  std::string remote() const override { return remote_; }
  std::optional<KeyHash> peer_key() const override;
  std::string admitted_as() const override;
  std::string local_host() const override;
  Ends ends() const override;
  bool is_relayed() const override { return is_relayed_; }

  void abandon();  // the network is going: close without callbacks

 private:
  struct Outgoing {
    std::array<std::byte, kFrameHeaderBytes> header;
    std::string meta;
    std::vector<SharedBytes> payload;
    std::uint64_t bytes;
  };

  // Up to so much is sealed, or opened, by the control thread: the wakeups of a hand-over would
  // cost more. What is opened at once is what has come, and what there is room for: where payloads
  // are small, that is little.
  static constexpr std::size_t kSealedHereBytesMax = 16 * kKiB;
  static constexpr std::size_t kOpenedHereBytesMax = 128 * kKiB;

  // Where bytes that come are to go.
  struct Space {
    std::array<struct iovec, 2> parts{};
    std::size_t count = 0, bytes = 0;
  };
  struct Came {
    std::size_t bytes = 0;
    bool more = true;               // may be there now
    std::optional<Error> end = {};  // nothing comes any more
  };

  bool has_room_for(std::uint64_t bytes);
  void send_now(Frame frame);
  static Outgoing outgoing(Frame frame);
  void refill();
  void post_flush();
  void flush();
  void wait_writable();
  std::size_t gather(struct iovec* parts) const;
  void written(std::size_t bytes);
  void not_written(int error);
  void end_flush();
  void seal_elsewhere();
  void sealed(std::size_t bytes, int error);
  bool opens_elsewhere(const Space& to) const;
  void open_elsewhere(Space to);
  void opened(const Came& came);
  bool came_home_too_late();
  void wait_readable();
  void post_read();
  void read();
  ssize_t send_some(const struct iovec* parts, std::size_t count);
  ssize_t receive_some(const struct iovec* parts, std::size_t count);
  bool holds_sealed() const { return secured_ && secured_->stream->holds_unsent(); }
  Space space();
  Came bring(const Space& to);
  std::optional<Error> why_nothing_comes(ssize_t got, int error) const;
  bool took(const Came& came);
  Result<void> take(std::size_t bytes);
  void end_bad_stream(const Error& error);
  Result<void> deliver_ready();
  void time_arrival();
  void report_arrival(const Arrival& arrival);
  void be_stranger();
  void watch_stranger();
  Instant stranger_deadline() const;
  void give_way();
  void end_stranger(Error error);
  bool note_held();  // false: it may not
  bool stranger_holds_too_much();
  void leave_strangers();
  void finish(Error error);
  void close_socket();
  void let_go();

  std::shared_ptr<TcpShared> shared_;
  Socket socket_;
  const std::string remote_;
  const bool is_relayed_;
  const std::optional<Secured> secured_;
  Handlers handlers_;
  FrameReader reader_;
  PieceJoiner joiner_;
  ConnectionBounds bounds_;
  std::optional<Strangers::Id> stranger_;  // none: it is believed
  TimerId stranger_timer_;
  bool gives_way_ = false;  // to another stranger
  // Lists: thousands of connections have empty queues, and an empty deque takes 600 bytes.
  std::list<Outgoing> queue_;
  std::uint64_t front_written_ = 0;  // bytes of queue_.front() that have left
  std::list<Outgoing> later_;        // pieces, and what was sent after them: not in queue_ yet
  std::uint64_t later_bytes_ = 0;
  std::uint64_t unsent_bytes_ = 0;
  Connection::Counters counters_;
  // Of the payload being filled: when its first bytes were seen, how many they were, and how many
  // were last reported.
  std::optional<Instant> arrival_began_;
  std::uint64_t arrival_first_bytes_ = 0;
  std::uint64_t arrival_reported_ = 0;
  std::optional<Error> early_end_;  // the connection ended before start()
  TimerId close_timer_;
  bool started_ = false;
  bool closing_ = false;  // close() was called, or the queue was full: nothing is delivered or
                          // accepted any more
  bool closed_ = false;   // on_closed was delivered
  bool delivering_ = false;
  bool flush_pending_ = false;  // posted, waiting for the socket, or in the pool
  bool shut_down_ = false;      // our half of the stream is ended
  bool gone_ = false;           // the socket is
  int elsewhere_ = 0;           // what the pool has of this connection
};

}  // namespace swarmline
