// Ports of this machine, from the system.
#pragma once

#include <arpa/inet.h>
#include <deque>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace swarmline {

// A port of loopback that nobody else has while this lives.
class OwnPort {
 public:
  enum class Use {
    kSilent,     // whoever dials it is refused
    kListening,  // and never answers
    kShared,     // silent, until a program listens there that reuses addresses
  };
  explicit OwnPort(Use use) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = use == Use::kShared ? 1 : 0;
    EXPECT_EQ(::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    if (use == Use::kListening) EXPECT_EQ(::listen(socket_, 1), 0);
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

// For a program that must be told its port: nobody else has it until the test ends, and the program
// may listen there, since both reuse the address.
inline std::string free_address() {
  static std::deque<OwnPort> held;
  return held.emplace_back(OwnPort::Use::kShared).address();
}

}  // namespace swarmline
