// Ports of this machine, from the system.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace swarmline {

// A port of loopback that nobody else has while this lives; listening or not.
class OwnPort {
 public:
  explicit OwnPort(bool listening) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    if (listening) EXPECT_EQ(::listen(socket_, 1), 0);
    socklen_t length = sizeof(address);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
  }
  ~OwnPort() { ::close(socket_); }
  OwnPort(const OwnPort&) = delete;
  OwnPort& operator=(const OwnPort&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  int socket_;
  int port_ = 0;
};

// Free a moment ago, for a program that must be told its port. The system hands out others first.
inline std::string free_address() {
  return OwnPort(false).address();
}

}  // namespace swarmline
