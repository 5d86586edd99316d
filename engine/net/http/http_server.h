// A small HTTP/1.1 server on the control thread: for pages that people and monitors of a run look
// at, not for bulk. Boost is seen only by the .cc files.
//   What:      GET and HEAD; requests have no body. The handler answers each request at once.
//   Ownership: the AsioRuntime outlives it. Destroying it closes all connections; the handler is
//              not called any more.
//   Thread:    control thread. Nothing in it waits.
//   Errors:    bytes that are no such request are counted and answered with 400, 405, 413 or 431,
//              and end their connection.
//   Bounds:    connections_max; the one that has asked for nothing for longest gives way to another
//              (503 where there is none); streams_max of them are streams. kHttpRequestBytesMax a
//              request. request_max for a first request to come whole, idle_max for the next one,
//              answer_max for an answer or a piece of a stream to go, in all. What is unsent of a
//              stream: stream_bytes_max, and one piece more.
//   Source:    RFC 9112; Boost.Beast parses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/units.h"
#include "engine/net/http/http_message.h"
#include "engine/net/network.h"
#include "engine/runtime/asio_runtime.h"

namespace swarmline {

inline constexpr std::size_t kHttpRequestBytesMax = 16 * 1024;  // its line and headers

struct HttpOptions {
  std::string tls_pem = {};  // certificate and key (web_certificate.h); empty: plain
  std::size_t connections_max = 64;
  std::size_t streams_max = 32;
  std::size_t stream_bytes_max = 1 << 20;
  Duration request_max = std::chrono::seconds(10);
  Duration idle_max = std::chrono::seconds(60);
  Duration answer_max = std::chrono::seconds(60);
  Duration linger_max = std::chrono::seconds(1);  // of a connection that is ended
};

class HttpServer {
 public:
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;

  struct Counters {
    std::uint64_t accepted = 0, refused = 0, gave_way = 0;
    std::uint64_t answered = 0, bad_requests = 0, streams = 0;
    std::uint64_t timed_out = 0, slow_readers = 0;
  };

  HttpServer(AsioRuntime& runtime, HttpOptions options, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Returns the bound address. kNotFound, kIo: it can't be had; kCorrupt: tls_pem is none.
  Result<Address> listen(const Address& address);
  std::size_t connections() const;
  Counters counters() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace swarmline
