#include "engine/net/tcp/tcp_network.h"

#include <utility>
#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

#include "base/log.h"
#include "engine/net/tcp/acceptor.h"
#include "engine/net/tcp/tcp_connection.h"
#include "engine/net/tcp/tcp_relay.h"
#include "engine/net/tcp/tls_lobby.h"
#include "engine/runtime/asio_access.h"

namespace swarmline {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr Duration kAcceptRetryDelay = std::chrono::milliseconds(100);

std::string text_of(const tcp::endpoint& endpoint) {
  return to_string(Address{endpoint.address().to_string(), endpoint.port()});
}

// The endpoints that "host:port" may mean; an IP literal asks no name server.
using Endpoints = tcp::resolver::results_type;
std::optional<Endpoints> literal(const Address& address) {
  error_code error;
  const auto ip = asio::ip::make_address(address.host, error);
  if (error) return std::nullopt;
  return Endpoints::create(tcp::endpoint(ip, address.port), address.host,
                           std::to_string(address.port));
}

// Only a refusal says that nobody is there: a host may be out of reach for a while. Without a
// descriptor, a port or memory it is this end.
ErrorCode code_of_dial(const error_code& error) {
  using boost::system::errc::errc_t;
  if (error == asio::error::connection_refused) return ErrorCode::kPeerGone;
  for (const errc_t own :
       {errc_t::too_many_files_open, errc_t::too_many_files_open_in_system, errc_t::no_buffer_space,
        errc_t::not_enough_memory, errc_t::address_not_available})
    if (error == own) return ErrorCode::kIo;
  return ErrorCode::kDeadline;
}

}  // namespace

namespace {

std::shared_ptr<Connection> secured(const std::shared_ptr<TcpShared>& shared, TlsLink link,
                                    bool is_relayed) {
  return std::make_shared<TcpConnection>(
      shared, std::move(link.socket), link.facts.remote, is_relayed,
      TcpConnection::Secured{.stream = std::move(link.stream),
                             .key = link.facts.key,
                             .admitted_as = std::move(link.admitted_as)});
}

}  // namespace

struct TcpNetwork::State : std::enable_shared_from_this<State> {
  State(AsioRuntime& runtime, TcpOptions options)
      : io(io_context_of(runtime)), shared(std::make_shared<TcpShared>(runtime, options)) {
    if (options.guard) shared->lobby.emplace(runtime, *options.guard, options, shared->counters);
  }

  struct Listener {
    tcp::acceptor acceptor;
    Accepted on_accepted;
  };
  // One connect(): whatever ends it first settles it.
  struct Attempt {
    Attempt(asio::io_context& io, Address a, Connected c)
        : socket(io), resolver(io), address(std::move(a)), on_connected(std::move(c)) {}
    tcp::socket socket;
    tcp::resolver resolver;
    Address address;
    Connected on_connected;
    TimerId timer;
    std::shared_ptr<TlsHandshake> handshake;
    // ---- Where it leads to a relay ----
    std::optional<Meeting> meeting;
    std::string said;  // to it
    char answer = kRelayNotTaken;
  };

  void accept_next(const std::shared_ptr<Listener>& listener);
  void accepted(const std::shared_ptr<Listener>& listener, tcp::socket socket);
  void connect_any(const std::shared_ptr<Attempt>& attempt, const Endpoints& endpoints);
  void connected(const std::shared_ptr<Attempt>& attempt, const error_code& error);
  void show_ticket(const std::shared_ptr<Attempt>& attempt);
  void met(const std::shared_ptr<Attempt>& attempt, const error_code& error);
  void made(const std::shared_ptr<Attempt>& attempt);
  void be_dialled(const std::shared_ptr<Attempt>& attempt);
  void begin(const std::shared_ptr<Attempt>& attempt, Duration timeout);
  void secure(const std::shared_ptr<Attempt>& attempt);
  void settle(const std::shared_ptr<Attempt>& attempt, Result<std::shared_ptr<Connection>> result);

  AsioRuntime& runtime() { return shared->runtime; }

  asio::io_context& io;
  std::shared_ptr<TcpShared> shared;
  std::vector<std::shared_ptr<Listener>> listeners;
  bool stopped = false;
};

void TcpNetwork::State::accept_next(const std::shared_ptr<Listener>& listener) {
  listener->acceptor.async_accept(
      [self = shared_from_this(), listener](const error_code& error, tcp::socket socket) {
        if (self->stopped || !listener->acceptor.is_open()) return;
        HandlerScope scope(self->runtime());
        if (!error) {
          self->accepted(listener, std::move(socket));
          return self->accept_next(listener);
        }
        // Out of descriptors, say: those who wait in the backlog get their turn later.
        log(LogLevel::kWarn, "cannot accept a connection: {}", error.message());
        self->runtime().call_after(kAcceptRetryDelay, [weak = self->weak_from_this(), listener] {
          const auto state = weak.lock();
          if (state && !state->stopped && listener->acceptor.is_open())
            state->accept_next(listener);
        });
      });
}

void TcpNetwork::State::accepted(const std::shared_ptr<Listener>& listener, tcp::socket socket) {
  ++shared->counters.accepted;
  error_code error;
  const tcp::endpoint remote = socket.remote_endpoint(error);
  if (error) return;                                   // it came and went
  const Accepted on_accepted = listener->on_accepted;  // it may stop listening
  if (!shared->lobby)
    return on_accepted(
        std::make_shared<TcpConnection>(shared, std::move(socket), text_of(remote), false));
  shared->lobby->accept(std::move(socket), remote.address().to_string(), text_of(remote),
                        [state = shared_from_this(), weak = std::weak_ptr(listener)](TlsLink link) {
                          const auto still = weak.lock();
                          if (state->stopped || !still || !still->acceptor.is_open()) return;
                          const Accepted on_link = still->on_accepted;
                          on_link(secured(state->shared, std::move(link), false));
                        });
}

void TcpNetwork::State::connect_any(const std::shared_ptr<Attempt>& attempt,
                                    const Endpoints& endpoints) {
  asio::async_connect(
      attempt->socket, endpoints,
      [self = shared_from_this(), attempt](const error_code& error, const tcp::endpoint&) {
        HandlerScope scope(self->runtime());
        self->connected(attempt, error);
      });
}

void TcpNetwork::State::connected(const std::shared_ptr<Attempt>& attempt,
                                  const error_code& connect_error) {
  if (!attempt->on_connected) return;  // its deadline closed the socket
  error_code error = connect_error;
  // Where no socket could be opened, asio says that this was cancelled.
  if (error == asio::error::operation_aborted && !attempt->socket.is_open()) {
    error_code opening;
    attempt->socket.open(tcp::v4(), opening);
    if (opening) error = opening;
  }
  tcp::endpoint local, remote;
  if (!error) local = attempt->socket.local_endpoint(error);
  if (!error) remote = attempt->socket.remote_endpoint(error);
  // Linux joins a socket to itself when its own ephemeral port is the one asked for: nobody listens
  // there.
  if (!error && local == remote) error = asio::error::connection_refused;
  if (error) {
    return settle(attempt, fail(code_of_dial(error),
                                fmt::format("cannot connect to {}: {}", to_string(attempt->address),
                                            error.message())));
  }
  attempt->meeting ? show_ticket(attempt) : made(attempt);
}

void TcpNetwork::State::made(const std::shared_ptr<Attempt>& attempt) {
  if (shared->lobby)
    return attempt->meeting && !attempt->meeting->dials ? be_dialled(attempt) : secure(attempt);
  ++shared->counters.connected;
  settle(attempt, std::shared_ptr<Connection>(std::make_shared<TcpConnection>(
                      shared, std::move(attempt->socket), to_string(attempt->address),
                      attempt->meeting.has_value())));
}

// ---- Over a relay -------------------------------------------------------------------------------

void TcpNetwork::State::show_ticket(const std::shared_ptr<Attempt>& attempt) {
  attempt->said = std::string(kRelayHello) + attempt->meeting->ticket;
  asio::async_write(attempt->socket, asio::buffer(attempt->said),
                    [self = shared_from_this(), attempt](const error_code& error, std::size_t) {
                      HandlerScope scope(self->runtime());
                      if (error) return self->met(attempt, error);
                      asio::async_read(attempt->socket, asio::buffer(&attempt->answer, 1),
                                       [self, attempt](const error_code& unread, std::size_t) {
                                         HandlerScope inner(self->runtime());
                                         self->met(attempt, unread);
                                       });
                    });
}

void TcpNetwork::State::met(const std::shared_ptr<Attempt>& attempt, const error_code& error) {
  if (!attempt->on_connected) return;  // its deadline closed the socket
  if (!error && attempt->answer == kRelayJoined) return made(attempt);
  const std::string why = error ? error.message() : "it does not take this link";
  settle(attempt, fail(ErrorCode::kDeadline,
                       fmt::format("the relay at {}: {}", to_string(attempt->address), why)));
}

void TcpNetwork::State::be_dialled(const std::shared_ptr<Attempt>& attempt) {
  const std::string remote = to_string(attempt->address);
  shared->lobby->accept(std::move(attempt->socket), attempt->address.host, remote,
                        [self = shared_from_this(), weak = std::weak_ptr(attempt)](TlsLink link) {
                          const auto waits = weak.lock();
                          if (!waits || self->stopped) return;
                          ++self->shared->counters.connected;
                          self->settle(waits, secured(self->shared, std::move(link), true));
                        });
}

void TcpNetwork::State::secure(const std::shared_ptr<Attempt>& attempt) {
  attempt->handshake = shared->lobby->dial(
      std::move(attempt->socket), attempt->address,
      [self = shared_from_this(), weak = std::weak_ptr(attempt)](Result<TlsLink> link) {
        const auto settled = weak.lock();
        if (!settled) return;
        if (!link) return self->settle(settled, std::unexpected(link.error()));
        ++self->shared->counters.connected;
        self->settle(settled,
                     secured(self->shared, std::move(*link), settled->meeting.has_value()));
      });
  attempt->handshake->start();
}

void TcpNetwork::State::settle(const std::shared_ptr<Attempt>& attempt,
                               Result<std::shared_ptr<Connection>> result) {
  const Connected on_connected = std::exchange(attempt->on_connected, {});
  if (!on_connected) return;
  runtime().cancel(attempt->timer);
  error_code ignored;
  attempt->resolver.cancel();
  attempt->socket.close(ignored);
  if (const auto handshake = std::exchange(attempt->handshake, nullptr)) handshake->stop();
  if (!stopped) on_connected(std::move(result));
}

TcpNetwork::TcpNetwork(AsioRuntime& runtime, TcpOptions options)
    : state_(std::make_shared<State>(runtime, options)) {}

TcpNetwork::~TcpNetwork() {
  state_->stopped = true;
  stop_listening();
  if (state_->shared->lobby) state_->shared->lobby->stop();
  std::vector<std::shared_ptr<TcpConnection>> open;
  for (TcpConnection* connection : state_->shared->open) {
    if (auto held = connection->weak_from_this().lock()) open.push_back(std::move(held));
  }
  for (const auto& connection : open) connection->abandon();
  if (state_->shared->pool) state_->shared->pool->join();  // what it has to say needs the runtime
}

Result<Address> TcpNetwork::listen(const Address& address, Accepted on_accepted) {
  const auto listener = std::make_shared<State::Listener>(
      State::Listener{tcp::acceptor(state_->io), std::move(on_accepted)});
  auto bound = bind_acceptor(listener->acceptor, address);
  if (!bound) return bound;
  state_->listeners.push_back(listener);
  state_->accept_next(listener);
  return bound;
}

void TcpNetwork::connect(const Address& address, Duration timeout, Connected on_connected) {
  state_->begin(std::make_shared<State::Attempt>(state_->io, address, std::move(on_connected)),
                timeout);
}

void TcpNetwork::meet(const Meeting& meeting, Duration timeout, Connected on_connected) {
  const auto attempt =
      std::make_shared<State::Attempt>(state_->io, meeting.relay, std::move(on_connected));
  attempt->meeting = meeting;
  state_->begin(attempt, timeout);
}

void TcpNetwork::State::begin(const std::shared_ptr<Attempt>& attempt, Duration timeout) {
  const auto state = shared_from_this();
  attempt->timer = runtime().call_after(timeout, [state, attempt, timeout] {
    state->settle(attempt, fail(ErrorCode::kDeadline,
                                fmt::format("{} did not answer within {:.3g} s",
                                            to_string(attempt->address), to_seconds(timeout))));
  });
  if (const auto endpoints = literal(attempt->address)) return connect_any(attempt, *endpoints);
  attempt->resolver.async_resolve(
      attempt->address.host, std::to_string(attempt->address.port),
      [state, attempt](const error_code& error, const Endpoints& endpoints) {
        HandlerScope scope(state->runtime());
        if (!attempt->on_connected) return;
        if (!error) return state->connect_any(attempt, endpoints);
        state->settle(attempt, fail(ErrorCode::kNotFound,
                                    fmt::format("cannot find host \"{}\": {}",
                                                attempt->address.host, error.message())));
      });
}

void TcpNetwork::stop_listening() {
  for (const auto& listener : state_->listeners) {
    error_code ignored;
    listener->acceptor.close(ignored);
  }
  state_->listeners.clear();
}

TcpNetwork::Counters TcpNetwork::counters() const {
  return state_->shared->counters;
}

}  // namespace swarmline
