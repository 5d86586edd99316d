#include "tools/link_proxy/link_proxy.h"

#include <deque>
#include <set>
#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

#include "base/log.h"
#include "engine/net/tcp/acceptor.h"
#include "engine/runtime/asio_access.h"

namespace swarmline {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

class Pipe;

// One direction of the link: the line, and the pipes that wait for room on it.
struct Direction {
  explicit Direction(std::uint64_t seed) : line(seed) {}
  LinkLine line;
  std::uint64_t held_bytes = 0;
  std::uint64_t delivered_bytes = 0;
  std::uint64_t corrupted_bytes = 0;
  std::set<Pipe*> waiting;
};

struct Cable {
  explicit Cable(AsioRuntime& r) : runtime(r) {}
  AsioRuntime& runtime;
  bool cut = false;
};

// One direction of one connection: reads from `from`, holds each piece until it is due, writes it.
class Pipe : public std::enable_shared_from_this<Pipe> {
 public:
  Pipe(Cable& cable, Direction& direction, tcp::socket& from, tcp::socket& to,
       std::function<void(bool orderly)> on_end)
      : cable_(cable), direction_(direction), from_(from), to_(to), on_end_(std::move(on_end)) {}

  void read() {
    if (ended_ || eof_ || reading_) return;
    if (cable_.cut || direction_.held_bytes >= direction_.line.window_bytes()) {
      direction_.waiting.insert(this);
      return;
    }
    reading_ = true;
    buffer_.resize(direction_.line.piece_bytes());
    from_.async_read_some(asio::buffer(buffer_.data(), buffer_.size()),
                          [self = shared_from_this()](const error_code& error, std::size_t bytes) {
                            HandlerScope scope(self->cable_.runtime);
                            self->reading_ = false;
                            self->got(error, bytes);
                          });
  }
  void wake() {  // the cable is back
    read();
    deliver();
  }
  void end() {
    if (std::exchange(ended_, true)) return;
    cable_.runtime.cancel(timer_);
    direction_.waiting.erase(this);
    for (const Piece& piece : pieces_) direction_.held_bytes -= piece.bytes.size();
    pieces_.clear();
    make_room();
  }
  bool finished() const { return ended_ || shut_down_; }

 private:
  struct Piece {
    Instant due;
    std::vector<std::byte> bytes;  // empty: the stream ends here
  };

  void got(const error_code& error, std::size_t bytes) {
    if (ended_) return;
    if (error && error != asio::error::eof) return on_end_(false);
    std::vector<std::byte> piece(buffer_.begin(),
                                 buffer_.begin() + static_cast<std::ptrdiff_t>(bytes));
    direction_.corrupted_bytes += direction_.line.corrupt(piece);
    const Instant due = direction_.line.arrival(cable_.runtime.now(), bytes);
    eof_ = error == asio::error::eof;
    if (bytes > 0) {
      direction_.held_bytes += bytes;
      pieces_.push_back({due, std::move(piece)});
    }
    if (eof_) pieces_.push_back({due, {}});
    deliver();
    read();
  }

  void deliver() {
    if (ended_ || writing_ || cable_.cut || pieces_.empty()) return;
    const Instant due = pieces_.front().due;
    if (due > cable_.runtime.now()) {
      cable_.runtime.cancel(timer_);
      timer_ = cable_.runtime.call_at(due, [weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->deliver();
      });
      return;
    }
    if (pieces_.front().bytes.empty()) return shut_down();
    writing_ = true;
    const auto& bytes = pieces_.front().bytes;
    asio::async_write(to_, asio::buffer(bytes.data(), bytes.size()),
                      [self = shared_from_this()](const error_code& error, std::size_t) {
                        HandlerScope scope(self->cable_.runtime);
                        self->written(error);
                      });
  }

  void written(const error_code& error) {
    writing_ = false;
    if (ended_) return;
    if (error) return on_end_(false);
    const std::size_t bytes = pieces_.front().bytes.size();
    pieces_.pop_front();
    direction_.held_bytes -= bytes;
    direction_.delivered_bytes += bytes;
    make_room();
    deliver();
  }

  void shut_down() {
    pieces_.clear();
    shut_down_ = true;
    error_code ignored;
    to_.shutdown(tcp::socket::shutdown_send, ignored);
    on_end_(true);
  }

  void make_room() {
    const std::set<Pipe*> waiting = std::exchange(direction_.waiting, {});
    for (Pipe* pipe : waiting) pipe->read();
  }

  Cable& cable_;
  Direction& direction_;
  tcp::socket& from_;
  tcp::socket& to_;
  std::function<void(bool orderly)> on_end_;
  std::vector<std::byte> buffer_;
  std::deque<Piece> pieces_;
  TimerId timer_;
  bool reading_ = false;
  bool writing_ = false;
  bool eof_ = false;
  bool shut_down_ = false;
  bool ended_ = false;
};

struct Link {
  Link(asio::io_context& io, tcp::socket accepted) : near(std::move(accepted)), far(io) {}
  tcp::socket near;
  tcp::socket far;
  std::shared_ptr<Pipe> pipes[2];
  bool connecting = true;
};
using LinkPtr = std::shared_ptr<Link>;

void close_with_reset(tcp::socket& socket) {
  error_code ignored;
  socket.set_option(asio::socket_base::linger(true, 0), ignored);
  socket.close(ignored);
}

}  // namespace

struct LinkProxy::State : std::enable_shared_from_this<State> {
  State(AsioRuntime& runtime, LinkProxyOptions o)
      : io(io_context_of(runtime)),
        options(std::move(o)),
        cable(runtime),
        directions{Direction(Rng(options.seed).split(std::uint64_t{0}).seed()),
                   Direction(Rng(options.seed).split(std::uint64_t{1}).seed())},
        acceptor(io),
        resolver(io) {
    directions[0].line.set(options.forward);
    directions[1].line.set(options.backward);
  }

  Result<void> resolve();
  void accept_next();
  void accepted(tcp::socket socket);
  void open_far(const LinkPtr& link);
  void join(const LinkPtr& link);
  void on_end(const LinkPtr& link, bool orderly);
  void drop(const LinkPtr& link);
  static void close(const LinkPtr& link);

  asio::io_context& io;
  LinkProxyOptions options;
  Cable cable;
  Direction directions[2];
  tcp::acceptor acceptor;
  tcp::resolver resolver;
  tcp::resolver::results_type far_endpoints;
  std::set<LinkPtr> links;
  std::set<LinkPtr> half_open;  // one end is closed; bounded by what the other ends have open
  std::uint64_t connections = 0;
};

Result<void> LinkProxy::State::resolve() {
  error_code error;
  far_endpoints = resolver.resolve(options.to.host, std::to_string(options.to.port), error);
  if (!error) return {};
  return fail(ErrorCode::kNotFound,
              fmt::format("cannot find {}: {}", to_string(options.to), error.message()));
}

void LinkProxy::State::accept_next() {
  acceptor.async_accept([self = shared_from_this()](const error_code& error, tcp::socket socket) {
    if (!self->acceptor.is_open()) return;
    HandlerScope scope(self->cable.runtime);
    if (!error) self->accepted(std::move(socket));
    self->accept_next();
  });
}

void LinkProxy::State::accepted(tcp::socket socket) {
  ++connections;
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  const auto link = std::make_shared<Link>(io, std::move(socket));
  links.insert(link);
  if (!cable.cut) open_far(link);
}

void LinkProxy::State::open_far(const LinkPtr& link) {
  asio::async_connect(
      link->far, far_endpoints,
      [self = shared_from_this(), link](const error_code& error, const tcp::endpoint&) {
        HandlerScope scope(self->cable.runtime);
        if (!self->links.contains(link)) return;
        if (!error) return self->join(link);
        log(LogLevel::kInfo, "link: {} does not answer: {}", to_string(self->options.to),
            error.message());
        self->drop(link);
      });
}

void LinkProxy::State::join(const LinkPtr& link) {
  link->connecting = false;
  error_code ignored;
  link->far.set_option(tcp::no_delay(true), ignored);
  const auto ended = [weak = weak_from_this(), weak_link = std::weak_ptr(link)](bool orderly) {
    const auto self = weak.lock();
    const auto held = weak_link.lock();
    if (self && held) self->on_end(held, orderly);
  };
  link->pipes[0] = std::make_shared<Pipe>(cable, directions[0], link->near, link->far, ended);
  link->pipes[1] = std::make_shared<Pipe>(cable, directions[1], link->far, link->near, ended);
  for (const auto& pipe : link->pipes) pipe->read();
}

// One way may end in order while the other still carries bytes.
void LinkProxy::State::on_end(const LinkPtr& link, bool orderly) {
  if (!orderly) return drop(link);
  if (!link->pipes[0]->finished() || !link->pipes[1]->finished()) return;
  if (links.erase(link) == 0) return;
  for (const auto& pipe : link->pipes) pipe->end();
  error_code ignored;
  link->near.close(ignored);
  link->far.close(ignored);
}

void LinkProxy::State::drop(const LinkPtr& link) {
  if (links.erase(link) == 0) return;
  for (const auto& pipe : link->pipes)
    if (pipe) pipe->end();
  close(link);
}

void LinkProxy::State::close(const LinkPtr& link) {
  close_with_reset(link->near);
  close_with_reset(link->far);
}

LinkProxy::LinkProxy(AsioRuntime& runtime, LinkProxyOptions options)
    : state_(std::make_shared<State>(runtime, std::move(options))) {}

LinkProxy::~LinkProxy() {
  error_code ignored;
  state_->acceptor.close(ignored);
  reset();
}

Result<Address> LinkProxy::start() {
  SWARMLINE_TRY(state_->resolve());
  auto bound = bind_acceptor(state_->acceptor, state_->options.listen);
  if (bound) state_->accept_next();
  return bound;
}

void LinkProxy::set(LinkWay way, const LinkShape& shape) {
  state_->directions[static_cast<int>(way)].line.set(shape);
}

const LinkShape& LinkProxy::shape(LinkWay way) const {
  return state_->directions[static_cast<int>(way)].line.shape();
}

void LinkProxy::cut() {
  state_->cable.cut = true;
}

void LinkProxy::heal() {
  for (const LinkPtr& link : std::exchange(state_->half_open, {})) State::close(link);
  if (!std::exchange(state_->cable.cut, false)) return;
  const std::set<LinkPtr> links = state_->links;
  for (const LinkPtr& link : links) {
    if (link->connecting) {
      if (!link->far.is_open()) state_->open_far(link);
      continue;
    }
    for (const auto& pipe : link->pipes) pipe->wake();
  }
}

bool LinkProxy::is_cut() const {
  return state_->cable.cut;
}

void LinkProxy::reset() {
  const std::set<LinkPtr> links = state_->links;
  for (const LinkPtr& link : links) state_->drop(link);
  for (const LinkPtr& link : std::exchange(state_->half_open, {})) State::close(link);
}

void LinkProxy::half_open(LinkEnd gone) {
  for (const LinkPtr& link : std::exchange(state_->links, {})) {
    for (const auto& pipe : link->pipes)
      if (pipe) pipe->end();
    close_with_reset(gone == LinkEnd::kNear ? link->near : link->far);
    state_->half_open.insert(link);
  }
}

LinkProxyCounters LinkProxy::counters() const {
  return {.connections = state_->connections,
          .open = state_->links.size(),
          .forward_bytes = state_->directions[0].delivered_bytes,
          .backward_bytes = state_->directions[1].delivered_bytes,
          .corrupted_bytes =
              state_->directions[0].corrupted_bytes + state_->directions[1].corrupted_bytes};
}

}  // namespace swarmline
