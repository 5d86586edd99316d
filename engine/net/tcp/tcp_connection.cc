#include "engine/net/tcp/tcp_connection.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <system_error>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "engine/net/tcp/liveness.h"

namespace swarmline {
namespace asio = boost::asio;
namespace {

constexpr std::uint64_t kArrivalStepBytes = 64 * kKiB;  // between two reports of a payload
constexpr Duration kCloseFlushMax = std::chrono::seconds(1);

std::string reason(int error) {
  return std::generic_category().message(error);
}

// What is sent is not acknowledged: nobody knows which end is cut off.
ErrorCode code_of(int error) {
  const bool unheard = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
  return unheard ? ErrorCode::kDeadline : ErrorCode::kPeerGone;
}

void set_up(int fd, const TcpOptions& options) {
  set_socket_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  watch_liveness(fd);
  if (options.socket_buffer_bytes > 0) {
    set_socket_option(fd, SOL_SOCKET, SO_SNDBUF, options.socket_buffer_bytes);
    set_socket_option(fd, SOL_SOCKET, SO_RCVBUF, options.socket_buffer_bytes);
  }
  // A child process must not keep a dead peer's connections alive.
  fcntl(fd, F_SETFD, FD_CLOEXEC);
}

}  // namespace

TcpConnection::TcpConnection(std::shared_ptr<TcpShared> shared, Socket socket, std::string remote,
                             bool is_relayed, std::optional<Secured> secured)
    : shared_(std::move(shared)),
      socket_(std::move(socket)),
      remote_(std::move(remote)),
      is_relayed_(is_relayed),
      secured_(std::move(secured)) {
  set_up(socket_.native_handle(), shared_->options);
  shared_->open.insert(this);
}

TcpConnection::~TcpConnection() {
  leave_strangers();
  shared_->open.erase(this);
}

void TcpConnection::start(Handlers handlers) {
  SWARMLINE_CHECK(!started_);
  started_ = true;
  handlers_ = std::move(handlers);
  if (handlers_.stranger && !early_end_ && !closed_) be_stranger();
  if (early_end_) {
    asio::post(socket_.get_executor(), [self = shared_from_this()] {
      HandlerScope scope(self->shared_->runtime);
      self->finish(*self->early_end_);
    });
  } else if (!closed_) {
    post_read();
  }
}

// Writing

void TcpConnection::send(Frame frame) {
  SWARMLINE_CHECK(std::ranges::all_of(
      frame.payload, [](const SharedBytes& part) { return !part.is_lent() || part.has_lender(); }));
  if (secured_) frame.keep_payload();  // it is sealed on another thread
  const bool in_pieces = travels_in_pieces(frame);
  const bool now = goes_ahead(frame) || (later_.empty() && !in_pieces);
  frame.flags &= ~kFrameFlagAhead;
  if (now) return send_now(std::move(frame));
  if (!has_room_for(wire_bytes_in_pieces(frame))) return;
  const auto put = [this](Frame piece) {
    later_.push_back(outgoing(std::move(piece)));
    later_bytes_ += later_.back().bytes;
    unsent_bytes_ += later_.back().bytes;
    ++counters_.frames_sent;
  };
  if (in_pieces) {
    for (Frame& piece : cut_into_pieces(std::move(frame))) put(std::move(piece));
  } else {
    put(std::move(frame));
  }
  refill();
  post_flush();
}

void TcpConnection::send_now(Frame frame) {
  if (!has_room_for(frame.wire_bytes())) return;
  queue_.push_back(outgoing(std::move(frame)));
  unsent_bytes_ += queue_.back().bytes;
  ++counters_.frames_sent;
  post_flush();
}

// False: nothing is sent any more.
bool TcpConnection::has_room_for(std::uint64_t bytes) {
  if (closing_ || closed_ || early_end_) return false;
  const std::uint64_t most = std::min(shared_->options.queue_bytes_max, bounds_.unsent_bytes_max);
  if (unsent_bytes_ + bytes <= most) return true;
  leave_strangers();
  closing_ = true;
  close_socket();  // or the flush would end first and report an orderly close
  asio::post(socket_.get_executor(), [self = shared_from_this(), most] {
    HandlerScope scope(self->shared_->runtime);
    self->finish({ErrorCode::kRefused,
                  fmt::format("{} takes too slowly: more than {} bytes were queued for it",
                              self->remote_, most)});
  });
  return false;
}

TcpConnection::Outgoing TcpConnection::outgoing(Frame frame) {
  const FrameHeader header = frame.header();
  return {encode_header(header), std::move(frame.meta), std::move(frame.payload),
          kFrameHeaderBytes + header.meta_bytes + header.payload_bytes};
}

// What the queue holds leaves in its order: of what waits for pieces it gets one at a time.
void TcpConnection::refill() {
  while (!later_.empty() && unsent_bytes_ - later_bytes_ < kPieceBytes) {
    later_bytes_ -= later_.front().bytes;
    queue_.splice(queue_.end(), later_, later_.begin());
  }
}

void TcpConnection::post_flush() {
  // Posted, not called: the frames that one callback sends leave in one gathered write.
  if (flush_pending_) return;
  flush_pending_ = true;
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    HandlerScope scope(self->shared_->runtime);
    self->flush();
  });
}

void TcpConnection::wait_writable() {
  flush_pending_ = true;
  socket_.async_wait(Socket::wait_write,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       if (error) return;
                       HandlerScope scope(self->shared_->runtime);
                       self->flush();
                     });
}

std::size_t TcpConnection::gather(struct iovec* parts) const {
  std::size_t count = 0;
  std::uint64_t skip = front_written_;
  const auto add = [&](const void* data, std::size_t size) {
    const std::size_t skipped = std::min<std::uint64_t>(skip, size);
    skip -= skipped;
    if (skipped == size || count == IOV_MAX) return;
    parts[count++] = {const_cast<char*>(static_cast<const char*>(data)) + skipped, size - skipped};
  };
  for (const Outgoing& frame : queue_) {
    if (count == IOV_MAX) break;
    add(frame.header.data(), frame.header.size());
    add(frame.meta.data(), frame.meta.size());
    for (const SharedBytes& part : frame.payload) add(part.data(), part.size());
  }
  return count;
}

void TcpConnection::written(std::size_t bytes) {
  unsent_bytes_ -= bytes;
  counters_.bytes_sent += bytes;
  shared_->counters.bytes_sent += bytes;
  ++shared_->counters.write_calls;
  if (stranger_) note_held();
  front_written_ += bytes;
  while (!queue_.empty() && front_written_ >= queue_.front().bytes) {
    front_written_ -= queue_.front().bytes;
    queue_.pop_front();
  }
  refill();
}

// The two calls that move bytes, as the system has them: -1 and errno.
ssize_t TcpConnection::send_some(const struct iovec* parts, std::size_t count) {
  if (secured_) return secured_->stream->send(parts, count);
  const msghdr message{.msg_iov = const_cast<struct iovec*>(parts), .msg_iovlen = count};
  return ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t TcpConnection::receive_some(const struct iovec* parts, std::size_t count) {
  if (secured_) return secured_->stream->receive(parts, count);
  msghdr message{.msg_iov = const_cast<struct iovec*>(parts), .msg_iovlen = count};
  return ::recvmsg(socket_.native_handle(), &message, MSG_DONTWAIT);
}

void TcpConnection::flush() {
  flush_pending_ = false;
  if (gone_) return;
  std::array<struct iovec, IOV_MAX> parts;
  std::size_t moved = 0;
  while (!queue_.empty() || holds_sealed()) {
    if (moved >= TcpNetwork::kHandlerBytesMax) return post_flush();
    if (holds_sealed() && secured_->stream->send_sealed() < 0) return not_written(errno);
    if (secured_ && unsent_bytes_ > kSealedHereBytesMax) return seal_elsewhere();
    const ssize_t sent = send_some(parts.data(), gather(parts.data()));
    if (sent >= 0) {
      moved += static_cast<std::size_t>(sent);
      written(static_cast<std::size_t>(sent));
    } else if (errno != EINTR) {
      return not_written(errno);
    }
  }
  if (closing_) end_flush();
}

void TcpConnection::not_written(int error) {
  if (error == EAGAIN || error == EWOULDBLOCK) return wait_writable();
  close_socket();
  finish({closing_ ? ErrorCode::kStopped : code_of(error),
          fmt::format("cannot write to {}: {}", remote_, reason(error))});
}

// Everything is with the kernel: end our half. The other end closes when it has read that far; only
// then may this process forget the connection: closing a socket with unread bytes resets it.
void TcpConnection::end_flush() {
  if (shut_down_) return;
  shut_down_ = true;
  boost::system::error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

void TcpConnection::close() {
  if (closing_ || closed_ || early_end_) return;
  closing_ = true;
  if (!started_) {  // nobody listens: no callback is due until start()
    early_end_ = Error{ErrorCode::kStopped, "closed by this end"};
    post_read();
  }
  std::weak_ptr<TcpConnection> weak = shared_from_this();
  close_timer_ = shared_->runtime.call_after(kCloseFlushMax, [weak] {
    if (const auto self = weak.lock()) {
      self->close_socket();
      self->finish({ErrorCode::kStopped, "closed by this end"});
    }
  });
  post_flush();
}

// Reading

void TcpConnection::wait_readable() {
  if (Buffer staging = reader_.rest(); !staging.empty())
    shared_->spare_staging = std::move(staging);
  socket_.async_wait(Socket::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       if (error) return;
                       HandlerScope scope(self->shared_->runtime);
                       self->read();
                     });
}

void TcpConnection::post_read() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    HandlerScope scope(self->shared_->runtime);
    self->read();
  });
}

// Where the next bytes go.
TcpConnection::Space TcpConnection::space() {
  if (!reader_.has_staging()) reader_.lend(std::exchange(shared_->spare_staging, Buffer()));
  Space space;
  for (const MutableBytes& part : reader_.space()) {
    if (part.empty()) continue;
    space.parts[space.count++] = {part.data(), part.size()};
    space.bytes += part.size();
  }
  return space;
}

// Reads into `to`. Not always on the control thread: what else a connection has is not touched.
TcpConnection::Came TcpConnection::bring(const Space& to) {
  ssize_t got = 0;
  do {
    got = receive_some(to.parts.data(), to.count);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return {.bytes = 0, .more = false, .end = why_nothing_comes(got, errno)};
  const auto bytes = static_cast<std::size_t>(got);
  // Less than there was room for: the socket is empty for now.
  return {.bytes = bytes, .more = bytes == to.bytes || (secured_ && secured_->stream->has_more())};
}

std::optional<Error> TcpConnection::why_nothing_comes(ssize_t got, int error) const {
  if (got == 0) {
    return Error{ErrorCode::kPeerGone,
                 reader_.between_frames()
                     ? fmt::format("{} closed the connection", remote_)
                     : fmt::format("{} closed the connection within a frame", remote_)};
  }
  if (error == EAGAIN || error == EWOULDBLOCK) return std::nullopt;
  if (error == EBADMSG && secured_) return Error{ErrorCode::kCorrupt, secured_->stream->problem()};
  return Error{code_of(error), fmt::format("cannot read from {}: {}", remote_, reason(error))};
}

void TcpConnection::read() {
  std::size_t moved = 0;
  const std::uint64_t frames_before = counters_.frames_received;
  while (!gone_) {
    const bool others_turn =
        moved >= TcpNetwork::kHandlerBytesMax ||
        counters_.frames_received - frames_before >= TcpNetwork::kHandlerFramesMax;
    if (others_turn) return post_read();
    const Space to = space();
    if (opens_elsewhere(to)) return open_elsewhere(to);
    const Came came = bring(to);
    moved += came.bytes;
    if (!took(came)) return;
  }
}

// False: nothing is to be read now, or ever.
bool TcpConnection::took(const Came& came) {
  if (came.end) {
    if (came.end->code == ErrorCode::kCorrupt && !closing_) {
      end_bad_stream(*came.end);
    } else {
      close_socket();
      finish(closing_ ? Error{ErrorCode::kStopped, "closed by this end"} : *came.end);
    }
    return false;
  }
  if (came.bytes > 0) {
    counters_.bytes_received += came.bytes;
    shared_->counters.bytes_received += came.bytes;
    ++shared_->counters.read_calls;
    if (const Result<void> parsed = take(came.bytes); !parsed) {
      end_bad_stream(parsed.error());
      return false;
    }
    if (stranger_ && stranger_holds_too_much()) return false;
  }
  if (!came.more && !gone_) wait_readable();
  return came.more;
}

// While closing, bytes are not committed: the same space is filled again.
Result<void> TcpConnection::take(std::size_t bytes) {
  if (closing_) return {};
  Result<void> parsed = reader_.commit(bytes);
  SWARMLINE_TRY(deliver_ready());  // frames before bad bytes were good
  while (parsed && !closing_ && reader_.has_more()) {
    parsed = reader_.commit(0);
    SWARMLINE_TRY(deliver_ready());
  }
  if (closing_) return {};
  if (parsed) time_arrival();
  if (closing_) return {};
  return parsed;
}

void TcpConnection::end_bad_stream(const Error& error) {
  ++shared_->counters.bad_streams;
  // Who dialled another service is told by its own end, each time it tries.
  const bool said_elsewhere = counters_.frames_received == 0 && !handlers_.stranger;
  if (const auto times = shared_->bad_stream_lines.happened(shared_->runtime.now()))
    log(said_elsewhere ? LogLevel::kDebug : LogLevel::kWarn,
        "bad bytes from {}: {}; the connection is closed ({} such)", remote_, error.what, times);
  close_socket();
  finish(error);
}

Result<void> TcpConnection::deliver_ready() {
  Result<void> joined;
  delivering_ = true;
  while (!closing_ && !closed_) {
    std::optional<Frame> frame = reader_.next();
    if (!frame) break;
    ++counters_.frames_received;
    if (stranger_) shared_->strangers.heard(*stranger_, shared_->runtime.now());
    // The first frame to end is the one whose payload was being filled, if there was one. Its first
    // bytes came before the clock was looked at.
    if (const auto began = std::exchange(arrival_began_, std::nullopt)) {
      const auto bytes = static_cast<double>(frame->payload_bytes());
      const double timed = bytes - static_cast<double>(arrival_first_bytes_);
      const double seconds = to_seconds(shared_->runtime.now() - *began);
      if (timed > 0) frame->received_over = from_seconds(seconds * bytes / timed);
    }
    const FrameRoom room = bounds_.room(frame->kind);
    Result<std::optional<Frame>> message = joiner_.take(std::move(*frame), room);
    if (!message) {
      joined = std::unexpected(std::move(message).error());
      break;
    }
    if (*message && handlers_.on_frame) handlers_.on_frame(std::move(**message));
  }
  delivering_ = false;
  if (closed_) handlers_ = {};
  return joined;
}

void TcpConnection::time_arrival() {
  const std::optional<Arrival> arrival = reader_.arriving();
  if (!arrival) return;
  if (!arrival_began_) {
    arrival_began_ = shared_->runtime.now();
    arrival_first_bytes_ = arrival->arrived.size();
    arrival_reported_ = 0;
  }
  if (arrival->payload_bytes >= shared_->options.arrival_bytes_min &&
      arrival->arrived.size() >= arrival_reported_ + kArrivalStepBytes)
    report_arrival(*arrival);
}

void TcpConnection::report_arrival(const Arrival& arrival) {
  arrival_reported_ = arrival.arrived.size();
  if (!handlers_.on_arriving || closed_ || joiner_.has_begun()) return;
  delivering_ = true;
  handlers_.on_arriving(arrival);
  delivering_ = false;
  if (closed_) handlers_ = {};
}

// Ending

void TcpConnection::finish(Error error) {
  if (closed_) return;
  if (!started_) {
    if (!early_end_) early_end_ = std::move(error);
    return;
  }
  closed_ = closing_ = true;
  ++shared_->counters.closed;
  const Handlers handlers = std::exchange(handlers_, {});
  if (handlers.on_closed) handlers.on_closed(std::move(error));
}

// Where threads of the pool still use the socket and what it carries, they find it shut, and the
// last of them that is over lets it go.
void TcpConnection::close_socket() {
  leave_strangers();
  shared_->runtime.cancel(close_timer_);
  unsent_bytes_ = 0;
  gone_ = true;
  if (elsewhere_ == 0) return let_go();
  boost::system::error_code ignored;
  socket_.shutdown(Socket::shutdown_both, ignored);
  socket_.cancel(ignored);
}

void TcpConnection::let_go() {
  queue_.clear();
  later_.clear();
  later_bytes_ = 0;
  front_written_ = 0;
  boost::system::error_code ignored;
  socket_.close(ignored);
}

void TcpConnection::abandon() {
  closed_ = closing_ = true;
  close_socket();
  if (!delivering_) handlers_ = {};
}

}  // namespace swarmline
