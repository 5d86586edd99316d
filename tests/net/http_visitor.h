// The other end of an HttpServer that runs on the test's own thread: what it sends is asked for
// while the server's runtime runs. Header-only.
#pragma once

#include <cerrno>
#include <string>
#include <sys/socket.h>

#include <gtest/gtest.h>

#include "engine/runtime/asio_runtime.h"
#include "tests/net/raw_socket.h"

namespace swarmline {

class HttpVisitor {
 public:
  HttpVisitor(AsioRuntime& runtime, const Address& server)
      : runtime_(runtime), socket_(RawSocket::connect(server)) {}

  void send(std::string_view bytes) const { socket_.send(bytes); }
  void half_close() const { ::shutdown(socket_.fd(), SHUT_WR); }
  void close() { socket_.close(); }
  int fd() const { return socket_.fd(); }

  // Everything so far, once it holds the text or the connection has ended.
  const std::string& until(std::string_view text, Duration limit = std::chrono::seconds(20)) {
    runtime_.run_until([&] { return got_.find(text) != got_.npos || ended(); }, limit);
    return got_;
  }
  // The same, once the server has ended the connection.
  const std::string& until_the_end(Duration limit = std::chrono::seconds(20)) {
    EXPECT_TRUE(runtime_.run_until([&] { return ended(); }, limit)) << "got: " << got_;
    return got_;
  }
  bool ended() {
    char bytes[4096];
    for (;;) {
      const ssize_t count = ::recv(socket_.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (count > 0) {
        got_.append(bytes, static_cast<std::size_t>(count));
      } else {
        return over_ = over_ || count == 0 || (errno != EAGAIN && errno != EINTR);
      }
    }
  }

 private:
  AsioRuntime& runtime_;
  RawSocket socket_;
  std::string got_;
  bool over_ = false;
};

inline std::string get(std::string_view path, std::string_view more = {}) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + std::string(more) +
         "\r\n";
}
inline bool starts(const std::string& text, std::string_view begin) {
  return text.starts_with(begin);
}

}  // namespace swarmline
