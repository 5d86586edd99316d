#include "engine/net/http/http_server.h"

#include <fcntl.h>
#include <map>
#include <optional>
#include <utility>

#include <boost/asio/ssl/context.hpp>
#include <fmt/format.h>
#include <openssl/ssl.h>

#include "base/log.h"
#include "engine/net/http/http_session.h"
#include "engine/net/tcp/acceptor.h"
#include "engine/runtime/asio_access.h"

namespace swarmline {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// A process without descriptors tries again after so long.
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);

constexpr std::string_view kFull =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

Result<std::unique_ptr<asio::ssl::context>> make_tls(const std::string& pem) {
  auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_options(context->native_handle(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  SSL_CTX_set_session_cache_mode(context->native_handle(), SSL_SESS_CACHE_OFF);
  error_code error;
  context->use_certificate_chain(asio::buffer(pem), error);
  if (!error) context->use_private_key(asio::buffer(pem), asio::ssl::context::pem, error);
  if (!error) return context;
  return fail(ErrorCode::kCorrupt,
              fmt::format("expected a certificate and its key (PEM): {}", error.message()));
}

}  // namespace

struct HttpServer::State : std::enable_shared_from_this<State> {
  State(AsioRuntime& of, HttpOptions with, Handler answers)
      : runtime(of),
        options(std::move(with)),
        handler(std::move(answers)),
        acceptor(io_context_of(of)) {}

  void accept() {
    acceptor.async_accept([self = shared_from_this()](const error_code& error, tcp::socket socket) {
      if (self->over) return;
      const HandlerScope scope(self->runtime);
      if (!error) self->take(std::move(socket));
      if (!error) return self->accept();
      log(LogLevel::kDebug, "page: no connection could be accepted: {}", error.message());
      self->runtime.call_after(kAcceptPause, [weak = self->weak_from_this()] {
        if (const auto again = weak.lock(); again && !again->over) again->accept();
      });
    });
  }

  void take(tcp::socket socket) {
    fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
    error_code ignored;  // the other end may have gone; a read finds out
    socket.set_option(tcp::no_delay(true), ignored);
    if (sessions.size() >= options.connections_max && !make_room()) {
      ++counters.refused;
      socket.non_blocking(true, ignored);
      socket.write_some(asio::buffer(kFull), ignored);
      return;
    }
    ++counters.accepted;
    const std::uint64_t id = ++last_id;
    auto session =
        make_http_session({.runtime = runtime,
                           .options = options,
                           .hooks = {.answer = handler,
                                     .may_stream = [this] { return may_stream(); },
                                     .end = [this](std::uint64_t ended) { sessions.erase(ended); },
                                     .counters = &counters},
                           .id = id},
                          std::move(socket), tls.get());
    sessions.emplace(id, session);
    session->start();
  }

  // The one that has asked for nothing for longest goes.
  bool make_room() {
    auto longest = sessions.end();
    for (auto at = sessions.begin(); at != sessions.end(); ++at) {
      const auto since = at->second->idle_since();
      if (since && (longest == sessions.end() || *since < *longest->second->idle_since()))
        longest = at;
    }
    if (longest == sessions.end()) return false;
    ++counters.gave_way;
    longest->second->close();
    sessions.erase(longest);
    return true;
  }

  bool may_stream() const {
    std::size_t streams = 0;
    for (const auto& [id, session] : sessions) streams += session->is_stream() ? 1 : 0;
    return streams < options.streams_max;
  }

  AsioRuntime& runtime;
  const HttpOptions options;
  const Handler handler;
  std::unique_ptr<asio::ssl::context> tls;  // null: plain
  tcp::acceptor acceptor;
  std::map<std::uint64_t, std::shared_ptr<HttpSession>> sessions;
  std::uint64_t last_id = 0;
  Counters counters;
  bool over = false;
};

HttpServer::HttpServer(AsioRuntime& runtime, HttpOptions options, Handler handler)
    : state_(std::make_shared<State>(runtime, std::move(options), std::move(handler))) {}

HttpServer::~HttpServer() {
  state_->over = true;
  error_code ignored;  // it is over
  state_->acceptor.close(ignored);
  for (const auto& [id, session] : state_->sessions) session->close();
  state_->sessions.clear();
}

Result<Address> HttpServer::listen(const Address& address) {
  if (!state_->options.tls_pem.empty()) {
    auto tls = make_tls(state_->options.tls_pem);
    if (!tls) return std::unexpected(std::move(tls).error());
    state_->tls = std::move(*tls);
  }
  auto bound = bind_acceptor(state_->acceptor, address);
  if (bound) state_->accept();
  return bound;
}

std::size_t HttpServer::connections() const {
  return state_->sessions.size();
}
HttpServer::Counters HttpServer::counters() const {
  return state_->counters;
}

}  // namespace swarmline
