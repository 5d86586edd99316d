// One connection of an HttpServer, over TCP or TLS. For the files of this folder.
//   Ownership: its server holds it until it says that it ended, and so do its pending operations.
//              Once close() was called it uses its hooks no more.
//   Thread:    control thread. Bounds: those of http_server.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include <boost/asio/ip/tcp.hpp>

#include "engine/net/http/http_server.h"

namespace boost::asio::ssl {
class context;
}

namespace swarmline {

class HttpSession {
 public:
  struct Hooks {  // what it asks of its server
    HttpServer::Handler answer;
    std::function<bool()> may_stream;  // there is room for another
    std::function<void(std::uint64_t id)> end;
    HttpServer::Counters* counters = nullptr;
  };
  virtual ~HttpSession() = default;
  virtual void start() = 0;
  virtual void close() = 0;                               // at once, without a word
  virtual std::optional<Instant> idle_since() const = 0;  // it has asked for nothing since
  virtual bool is_stream() const = 0;
};

struct HttpSessionParts {
  AsioRuntime& runtime;
  HttpOptions options;
  HttpSession::Hooks hooks;
  std::uint64_t id = 0;
};

// `tls`: null: plain; else its server's, which outlives nothing: links keep what they need of it.
std::shared_ptr<HttpSession> make_http_session(HttpSessionParts parts,
                                               boost::asio::ip::tcp::socket socket,
                                               boost::asio::ssl::context* tls);

}  // namespace swarmline
