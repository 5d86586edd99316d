#include "engine/net/tcp/tcp_relay.h"

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "base/marks.h"
#include "engine/net/tcp/acceptor.h"
#include "engine/net/tcp/liveness.h"
#include "engine/runtime/asio_access.h"

namespace swarmline {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::size_t kStrangersMore = 16;  // than the ends of all links
constexpr std::size_t kHelloBytes = kRelayHello.size() + kRelayTicketBytes;

// All links' bytes, one after the other.
struct Line {
  double bytes_per_second = 0;
  Instant free_at{};
  std::uint64_t bytes = 0;

  // When so many more may go on.
  Instant pass(Instant now, std::uint64_t more) {
    bytes += more;
    if (bytes_per_second <= 0) return now;
    free_at = std::max(free_at, now) + from_seconds(static_cast<double>(more) / bytes_per_second);
    return free_at;
  }
};

// What one end says, on its way to the other. Holds one buffer.
class Pipe : public std::enable_shared_from_this<Pipe> {
 public:
  Pipe(AsioRuntime& runtime, Line& line, std::size_t bytes, tcp::socket& from, tcp::socket& to,
       std::function<void(bool orderly)> on_end)
      : runtime_(runtime),
        line_(line),
        from_(from),
        to_(to),
        on_end_(std::move(on_end)),
        buffer_(bytes) {}

  void read() {
    from_.async_read_some(asio::buffer(buffer_.data(), buffer_.size()),
                          [self = shared_from_this()](const error_code& error, std::size_t bytes) {
                            HandlerScope scope(self->runtime_);
                            if (!self->over_) self->got(error, bytes);
                          });
  }
  void end() {
    over_ = true;
    runtime_.cancel(timer_);
  }
  bool finished() const { return finished_; }

 private:
  void got(const error_code& error, std::size_t bytes) {
    if (error == asio::error::eof) {
      error_code ignored;
      to_.shutdown(tcp::socket::shutdown_send, ignored);
      finished_ = true;
      return on_end_(true);
    }
    if (error) return on_end_(false);
    const Instant now = runtime_.now(), due = line_.pass(now, bytes);
    if (due <= now) return write(bytes);
    timer_ = runtime_.call_at(due, [weak = weak_from_this(), bytes] {
      if (const auto self = weak.lock(); self && !self->over_) self->write(bytes);
    });
  }
  void write(std::size_t bytes) {
    asio::async_write(to_, asio::buffer(buffer_.data(), bytes),
                      [self = shared_from_this()](const error_code& error, std::size_t) {
                        HandlerScope scope(self->runtime_);
                        if (self->over_) return;
                        error ? self->on_end_(false) : self->read();
                      });
  }

  AsioRuntime& runtime_;
  Line& line_;
  tcp::socket& from_;
  tcp::socket& to_;
  const std::function<void(bool)> on_end_;
  std::vector<char> buffer_;
  TimerId timer_;
  bool over_ = false, finished_ = false;
};

// Who has connected: without a ticket, waiting for the other end, or one end of a link.
struct End {
  explicit End(tcp::socket s) : socket(std::move(s)) {}
  tcp::socket socket;
  std::array<char, kHelloBytes> hello{};
  TimerId timer;
};
using EndPtr = std::shared_ptr<End>;

struct RelayedLink {
  EndPtr ends[2];
  std::shared_ptr<Pipe> pipes[2];
};
using LinkPtr = std::shared_ptr<RelayedLink>;

}  // namespace

struct TcpRelay::State : std::enable_shared_from_this<State> {
  State(AsioRuntime& control, RelayBounds given)
      : runtime(control),
        bounds(given),
        acceptor(io_context_of(control)),
        line{.bytes_per_second = given.bytes_per_second} {}

  struct Ticket {
    Instant until{};
    EndPtr first;  // who showed it; the other is waited for
  };

  void accept_next();
  void accepted(tcp::socket socket);
  void shown(const EndPtr& end, const error_code& error);
  void say(const EndPtr& end, char word, std::function<void(bool)> then);
  void refuse(const EndPtr& end);
  void drop(const EndPtr& end);
  void join(const EndPtr& one, const EndPtr& other);
  void begin(const LinkPtr& link);
  void on_end(const LinkPtr& link, bool orderly);
  void close(const LinkPtr& link);
  void forget_old_tickets();
  void stop();

  AsioRuntime& runtime;
  const RelayBounds bounds;
  tcp::acceptor acceptor;
  Line line;
  std::list<EndPtr> strangers;  // oldest first
  std::map<std::string, Ticket> tickets;
  std::set<LinkPtr> links;
  Counters counters;
};

// ---- Who comes ----------------------------------------------------------------------------------

void TcpRelay::State::accept_next() {
  acceptor.async_accept([self = shared_from_this()](const error_code& error, tcp::socket socket) {
    if (!self->acceptor.is_open()) return;
    HandlerScope scope(self->runtime);
    if (!error) {
      self->accepted(std::move(socket));
      return self->accept_next();
    }
    // Out of descriptors, say: those who wait in the backlog get their turn later.
    self->runtime.call_after(std::chrono::milliseconds(100), [weak = self->weak_from_this()] {
      const auto state = weak.lock();
      if (state && state->acceptor.is_open()) state->accept_next();
    });
  });
}

void TcpRelay::State::accepted(tcp::socket socket) {
  const auto end = std::make_shared<End>(std::move(socket));
  watch_liveness(end->socket.native_handle());
  error_code ignored;
  end->socket.set_option(tcp::no_delay(true), ignored);
  strangers.push_back(end);
  if (strangers.size() > 2 * std::size_t{bounds.links_max} + kStrangersMore) {
    SWARMLINE_MARK("relay.crowded_out");
    refuse(EndPtr(strangers.front()));
  }
  end->timer =
      runtime.call_after(bounds.hello_max, [weak = weak_from_this(), held = std::weak_ptr(end)] {
        const auto self = weak.lock();
        const auto late = held.lock();
        if (self && late) self->refuse(late);
      });
  asio::async_read(end->socket, asio::buffer(end->hello),
                   [self = shared_from_this(), end](const error_code& error, std::size_t) {
                     HandlerScope scope(self->runtime);
                     self->shown(end, error);
                   });
}

void TcpRelay::State::shown(const EndPtr& end, const error_code& error) {
  if (std::erase(strangers, end) == 0) return;  // refused meanwhile
  runtime.cancel(end->timer);
  const std::string_view hello(end->hello.data(), end->hello.size());
  forget_old_tickets();
  const auto ticket = tickets.find(std::string(hello.substr(kRelayHello.size())));
  if (error || !hello.starts_with(kRelayHello) || ticket == tickets.end()) {
    SWARMLINE_MARK("relay.no_ticket");
    return refuse(end);
  }
  if (!ticket->second.first) {
    ticket->second.first = end;
    end->timer = runtime.call_at(ticket->second.until, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->forget_old_tickets();
    });
    return;
  }
  const EndPtr first = ticket->second.first;
  runtime.cancel(first->timer);
  tickets.erase(ticket);
  join(first, end);
}

void TcpRelay::State::say(const EndPtr& end, char word, std::function<void(bool)> then) {
  const auto said = std::make_shared<char>(word);
  asio::async_write(end->socket, asio::buffer(said.get(), 1),
                    [self = shared_from_this(), end, said, then = std::move(then)](
                        const error_code& error, std::size_t) {
                      HandlerScope scope(self->runtime);
                      then(!error);
                    });
}

void TcpRelay::State::refuse(const EndPtr& end) {
  ++counters.not_taken;
  std::erase(strangers, end);
  runtime.cancel(end->timer);
  say(end, kRelayNotTaken, [this, end](bool) { drop(end); });
}

void TcpRelay::State::drop(const EndPtr& end) {
  error_code ignored;
  end->socket.close(ignored);
}

void TcpRelay::State::forget_old_tickets() {
  const Instant now = runtime.now();
  std::erase_if(tickets, [&](const auto& entry) {
    if (entry.second.until > now) return false;
    if (entry.second.first) refuse(entry.second.first);
    return true;
  });
}

// ---- Links --------------------------------------------------------------------------------------

void TcpRelay::State::join(const EndPtr& one, const EndPtr& other) {
  if (links.size() >= bounds.links_max) {
    SWARMLINE_MARK("relay.full");
    refuse(one);
    return refuse(other);
  }
  const auto link = std::make_shared<RelayedLink>(RelayedLink{.ends = {one, other}, .pipes = {}});
  links.insert(link);
  ++counters.links_ever;
  say(one, kRelayJoined, [this, link](bool said) {
    if (!links.contains(link)) return;
    if (!said) return close(link);
    say(link->ends[1], kRelayJoined, [this, link](bool both) {
      if (!links.contains(link)) return;
      both ? begin(link) : close(link);
    });
  });
}

void TcpRelay::State::begin(const LinkPtr& link) {
  const auto ended = [weak = weak_from_this(), weak_link = std::weak_ptr(link)](bool orderly) {
    const auto self = weak.lock();
    const auto held = weak_link.lock();
    if (self && held) self->on_end(held, orderly);
  };
  for (const int way : {0, 1}) {
    tcp::socket& from = link->ends[way]->socket;
    tcp::socket& to = link->ends[1 - way]->socket;
    link->pipes[way] = std::make_shared<Pipe>(runtime, line, bounds.buffer_bytes, from, to, ended);
  }
  for (const auto& pipe : link->pipes) pipe->read();
}

// One way may end in order while the other still carries bytes.
void TcpRelay::State::on_end(const LinkPtr& link, bool orderly) {
  if (orderly && !(link->pipes[0]->finished() && link->pipes[1]->finished())) return;
  close(link);
}

void TcpRelay::State::close(const LinkPtr& link) {
  if (links.erase(link) == 0) return;
  for (const auto& pipe : link->pipes)
    if (pipe) pipe->end();
  for (const EndPtr& end : link->ends) drop(end);
}

void TcpRelay::State::stop() {
  error_code ignored;
  acceptor.close(ignored);
  for (const LinkPtr& link : std::set<LinkPtr>(links)) close(link);
  for (const EndPtr& end : std::exchange(strangers, {})) {
    runtime.cancel(end->timer);
    drop(end);
  }
  for (const auto& [ticket, waits] : std::exchange(tickets, {})) {
    if (!waits.first) continue;
    runtime.cancel(waits.first->timer);
    drop(waits.first);
  }
}

// ---- The relay ----------------------------------------------------------------------------------

TcpRelay::TcpRelay(AsioRuntime& runtime, RelayBounds bounds)
    : state_(std::make_shared<State>(runtime, bounds)) {}

TcpRelay::~TcpRelay() {
  state_->stop();
}

Result<Address> TcpRelay::listen(const Address& address) {
  auto bound = bind_acceptor(state_->acceptor, address);
  if (bound) state_->accept_next();
  return bound;
}

bool TcpRelay::expect(const std::string& ticket) {
  State& state = *state_;
  state.forget_old_tickets();
  const std::size_t most = 2 * std::size_t{state.bounds.links_max};
  if (ticket.size() != kRelayTicketBytes || state.links.size() + state.tickets.size() >= most) {
    SWARMLINE_MARK("relay.expects_no_more");
    return false;
  }
  state.tickets[ticket].until = state.runtime.now() + state.bounds.ticket_life;
  return true;
}

RelayDoor::Counters TcpRelay::counters() const {
  Counters counters = state_->counters;
  counters.links = state_->links.size();
  counters.bytes = state_->line.bytes;
  return counters;
}

}  // namespace swarmline
