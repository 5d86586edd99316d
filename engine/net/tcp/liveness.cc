#include "engine/net/tcp/liveness.h"

#include <cerrno>
#include <chrono>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <system_error>

#include "base/log.h"
#include "engine/net/tcp/tcp_network.h"

namespace swarmline {
namespace {

// Asked, so that who only listens finds out as well; kSilentPeerMax says when it is over.
constexpr int kAskedAfterSeconds = 10, kAskedEachSeconds = 5;

}  // namespace

void set_socket_option(int socket, int level, int option, int value) {
  if (setsockopt(socket, level, option, &value, sizeof(value)) != 0)
    log(LogLevel::kDebug, "socket option {} refused: {}", option,
        std::generic_category().message(errno));
}

void watch_liveness(int socket) {
  using Milliseconds = std::chrono::milliseconds;
  const auto most = std::chrono::duration_cast<Milliseconds>(TcpNetwork::kSilentPeerMax);
  set_socket_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(most.count()));
  set_socket_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_socket_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kAskedAfterSeconds);
  set_socket_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kAskedEachSeconds);
}

}  // namespace swarmline
