// The other end of a TCP connection, as an ill-behaved program would hold it: blocking system
// calls, no framing.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <gtest/gtest.h>

#include "engine/net/network.h"

namespace swarmline {

class RawSocket {
 public:
  explicit RawSocket(int fd) : fd_(fd) {}
  RawSocket(RawSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RawSocket& operator=(RawSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~RawSocket() { close(); }

  static sockaddr_in ip(const Address& address) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(address.port);
    inet_pton(AF_INET, address.host.c_str(), &to.sin_addr);
    return to;
  }

  static RawSocket connect(const Address& address) {
    RawSocket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in to = ip(address);
    EXPECT_EQ(::connect(socket.fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    return socket;
  }

  static bool answers(const Address& address) {  // somebody listens there
    const RawSocket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in to = ip(address);
    return ::connect(socket.fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
  }

  // Bound to a free port and listening, with room for `backlog` that nobody accepted yet.
  static std::pair<RawSocket, Address> listen(int backlog) {
    RawSocket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at = ip({"127.0.0.1", 0});
    socklen_t size = sizeof(at);
    EXPECT_EQ(::bind(socket.fd_, reinterpret_cast<const sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(socket.fd_, backlog), 0);
    EXPECT_EQ(::getsockname(socket.fd_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    return {std::move(socket), Address{"127.0.0.1", ntohs(at.sin_port)}};
  }

  RawSocket accept() const { return RawSocket(::accept(fd_, nullptr, nullptr)); }

  void send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      ASSERT_GT(sent, 0);
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }

  std::string receive(std::size_t bytes) const {
    std::string got(bytes, '\0');
    const ssize_t count = ::recv(fd_, got.data(), bytes, MSG_WAITALL);
    got.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return got;
  }

  void send_if_open(std::string_view bytes) const {
    static_cast<void>(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  void shut() const { ::shutdown(fd_, SHUT_RDWR); }
  int fd() const { return fd_; }

  void reset() {  // RST instead of an orderly end
    const linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close();
  }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

}  // namespace swarmline
